"""What the kit asks of an implementation of QSD: two functions from NumPy to NumPy, and a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from quantal.dilution import Dilution, Vary

__all__ = ["Adapter", "Settings", "SupportsCalls", "SupportsGlobalState"]

Array = NDArray[Any]


class Adapter(Protocol):
    """An implementation of QSD on trial.

    Every argument after the arrays is a keyword. A seed is an integer in [0, 2³¹); the same seed
    means the same draw. Three more members are welcome, and an adapter without them has fewer
    checks or settles for the usual:

    - ``calls(x, *, count, …, seed)`` returns the outputs of ``count`` successive calls of *one*
      layer, seeded once. Without it, the checks of a layer's own stream are skipped.
    - ``global_state()`` returns something comparable that changes when the framework's global
      random state does. NumPy's and Python's own are watched anyway.
    - ``dtypes``, the names of the dtypes it takes, if not float16, float32 and float64.
    """

    @property
    def name(self) -> str:
        """What the report calls the implementation."""

    def apply(
        self,
        x: Array,
        *,
        rate: float,
        alpha: float,
        vary: Vary,
        unit_mean: bool,
        broadcast_dims: tuple[int, ...],
        p_broadcast_dims: tuple[int, ...],
        training: bool,
        seed: int,
    ) -> Array:
        """Return x after dilution, in its own shape and dtype."""

    def grad(
        self,
        x: Array,
        upstream: Array,
        *,
        rate: float,
        alpha: float,
        vary: Vary,
        unit_mean: bool,
        broadcast_dims: tuple[int, ...],
        p_broadcast_dims: tuple[int, ...],
        training: bool,
        seed: int,
    ) -> tuple[Array, Array]:
        """Return the output and the gradient of sum(output·upstream) with respect to x."""


@runtime_checkable
class SupportsCalls(Protocol):
    """An adapter that can call one layer many times."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> Sequence[Array]:
        """Return the outputs of successive calls of one layer."""


@runtime_checkable
class SupportsGlobalState(Protocol):
    """An adapter that can show its framework's global random state."""

    def global_state(self) -> object:
        """Return something that compares equal as long as the state is the same."""


@dataclass(frozen=True)
class Settings:
    """The keywords of a call, apart from its seed."""

    rate: Any
    alpha: Any
    vary: Any = "pq"
    unit_mean: bool = False
    broadcast_dims: tuple[int, ...] = ()
    p_broadcast_dims: tuple[int, ...] = ()
    training: bool = True

    @classmethod
    def of(cls, law: Dilution, **more: Any) -> Settings:
        """Return the settings of a law."""
        return cls(law.rate, law.alpha, law.vary, law.unit_mean, **more)
