"""What the kit asks of an implementation of QSD: two functions from NumPy to NumPy, and a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray

from quantal._errors import wrong_type
from quantal.dilution import Dilution, Vary

__all__ = ["Adapter", "Array", "Settings", "SupportsCalls", "SupportsGlobalState", "checked"]

Array = NDArray[Any]


class Adapter(Protocol):
    """An implementation of QSD, as the kit tests it.

    All arguments after the arrays are keywords. Arrays have up to five axes, may be empty, and may
    have any memory layout. A seed is an integer in [0, 2³¹); the same seed, settings and shape must
    give the same draw. An adapter without gradients may leave out ``grad``; the checks of gradients
    are then skipped. An adapter may also have these members:

    - ``calls(x, *, count, …, seed)`` returns the outputs of ``count`` successive calls of *one*
      layer, seeded once. Without it, the checks of a layer's own stream are skipped.
    - ``global_state()`` returns something comparable that changes when the framework's global
      random state changes. Those of NumPy and Python are watched in any case.
    - ``dtypes`` lists the names of its dtypes, out of float16, bfloat16, float32 and float64; by
      default all but bfloat16.
    - ``compiles = True`` says that each new shape or dtype takes the framework a long time. A run
      is then a quick one, with fewer of them, unless a full one is asked for.
    - ``version`` is printed after the name.
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


def checked(adapter: Any) -> Adapter:
    """Return an adapter, having seen that it has what every one of them needs."""
    try:
        has_both = isinstance(adapter.name, str) and callable(adapter.apply)
    except Exception:  # an AttributeError, or what somebody's own class raises
        has_both = False
    if not has_both:
        raise wrong_type("adapter", "an object with a name and a method apply", adapter)
    found: Adapter = adapter
    return found


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

    @property
    def law(self) -> Dilution:
        """The law of a single coefficient."""
        return Dilution(self.rate, self.alpha, vary=self.vary, unit_mean=self.unit_mean)

    def __str__(self) -> str:
        """Return what differs from the usual, in a few words."""
        words = [f"rate={self.rate!r}", f"alpha={self.alpha!r}"]
        words += [f"vary={self.vary!r}"] if self.vary != "pq" else []
        words += ["unit_mean=True"] if self.unit_mean else []
        words += [f"broadcast_dims={self.broadcast_dims}"] if self.broadcast_dims else []
        words += [f"p_broadcast_dims={self.p_broadcast_dims}"] if self.p_broadcast_dims else []
        words += ["training=False"] if not self.training else []
        return ", ".join(words)
