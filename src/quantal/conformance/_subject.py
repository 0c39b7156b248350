"""The implementation on trial: its calls, its draws, and the seeds it is given."""

from __future__ import annotations

import numbers
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from quantal._errors import wrong_type, wrong_value
from quantal.conformance._adapter import Adapter, Array, Settings, SupportsCalls, checked
from quantal.conformance._precision import dtypes_of, is_half, wide

__all__ = ["ConformanceError", "Floats", "Shape", "Subject"]

Floats = NDArray[Any]
Shape = tuple[int, ...]


class ConformanceError(Exception):
    """The implementation did something that no right one does."""


class Subject:
    """An adapter, with its draws kept so that checks can share them.

    Parameters
    ----------
    adapter : Adapter
        The implementation.
    seed : int
        All seeds that the adapter is given come from this one.
    quick : bool, optional
        Whether few shapes and dtypes must do; if left out, where the adapter ``compiles``.
    """

    def __init__(self, adapter: Adapter, seed: int, quick: bool | None = None) -> None:
        self.adapter = checked(adapter)
        self.seed = _checked_seed(seed)
        asked = _checked_quick(quick)
        self.quick = bool(getattr(adapter, "compiles", False)) if asked is None else asked
        self.dtypes = dtypes_of(adapter)
        self.dtype = self.dtypes[0]
        self._pools: dict[tuple[Settings, Shape, str], Floats] = {}

    def lacks(self, need: str) -> str:
        """Return why a check with that need must be skipped, or nothing."""
        if need in ("calls", "grad"):
            has = callable(getattr(self.adapter, need, None))
            return "" if has else f"the adapter has no `{need}`"
        half = [is_half(dtype) for dtype in self.dtypes]
        there = {"": True, "half precision": any(half), "single precision": not all(half)}
        return "" if there[need] else f"the adapter has no dtype of {need}"

    # --- seeds ---------------------------------------------------------------------------------

    def seeds(self, label: str, count: int, start: int = 0) -> list[int]:
        """Return seeds for the adapter: far apart, and the same for the same run and label."""
        return [self._seed(label, index) for index in range(start, start + count)]

    def _seed(self, label: str, index: int) -> int:
        entropy = (self.seed, zlib.crc32(label.encode()), index)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1

    def rng(self, label: str) -> np.random.Generator:
        """Return a generator for the kit's own inputs."""
        return np.random.default_rng(self._seed(label, 0))

    # --- calls ---------------------------------------------------------------------------------

    def apply(self, x: Array, settings: Settings, seed: int) -> Array:
        """Return the adapter's output, having seen that it is an array of the right shape."""
        x = np.asarray(x)  # NumPy makes scalars of arrays of no axes, which are no input
        return _output(x, self.adapter.apply(x, **vars(settings), seed=seed), "apply")

    def grad(self, x: Array, upstream: Array, settings: Settings, seed: int) -> tuple[Array, Array]:
        """Return the adapter's output and gradient, both of the right shape."""
        x, upstream = np.asarray(x), np.asarray(upstream)
        pair = self.adapter.grad(x, upstream, **vars(settings), seed=seed)
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ConformanceError(f"grad returned {type(pair).__name__}, not (output, gradient)")
        return _output(x, pair[0], "grad's output"), _output(x, pair[1], "grad's gradient")

    def calls(self, x: Array, settings: Settings, seed: int, count: int) -> Sequence[Array]:
        """Return the outputs of successive calls of one layer."""
        assert isinstance(self.adapter, SupportsCalls)
        x = np.asarray(x)
        outputs = self.adapter.calls(x, count=count, **vars(settings), seed=seed)
        if len(outputs) != count:
            raise ConformanceError(f"calls returned {len(outputs)} outputs for count={count}")
        return [_output(x, output, "calls") for output in outputs]

    # --- draws ---------------------------------------------------------------------------------

    def draw(
        self, settings: Settings, seed: int, shape: Shape, dtype: DTypeLike | None = None
    ) -> Floats:
        """Return the coefficients of one call: what becomes of an array of ones."""
        ones = np.ones(shape, self.dtype if dtype is None else dtype)
        return _finite(self.apply(ones, settings, seed), settings)

    def layer(
        self,
        settings: Settings,
        seed: int,
        shape: Shape,
        count: int,
        dtype: DTypeLike | None = None,
    ) -> Floats:
        """Return the coefficients of successive calls of one layer."""
        ones = np.ones(shape, self.dtype if dtype is None else dtype)
        outputs = self.calls(ones, settings, seed, count)
        return _finite(np.stack(outputs), settings)

    def pool(
        self, settings: Settings, calls: int, shape: Shape, dtype: DTypeLike | None = None
    ) -> Floats:
        """Return coefficients of so many calls, each with a seed of its own: (calls, *shape).

        The draws are kept: asking again returns the same ones, so statements about them are not
        independent of each other, which a budget divided by the union bound does not need.
        """
        dtype = np.dtype(self.dtype if dtype is None else dtype)
        key = (settings, shape, dtype.name)
        label = f"{settings} {shape}" + (f" {dtype.name}" if dtype != self.dtype else "")
        kept = self._pools.get(key)
        have = 0 if kept is None else len(kept)
        if have < calls:
            seeds = self.seeds(label, calls - have, start=have)
            drawn = np.stack([self.draw(settings, seed, shape, dtype) for seed in seeds])
            kept = drawn if kept is None else np.concatenate([kept, drawn])
            self._pools[key] = kept
        assert kept is not None
        return kept[:calls]  # and no more: what was drawn before must not change the answer


def _checked_seed(seed: Any) -> int:
    expected = "an integer in [0, 2**63)"
    if isinstance(seed, bool) or not isinstance(seed, numbers.Integral):
        raise wrong_type("seed", expected, seed)
    if not 0 <= int(seed) < 2**63:
        raise wrong_value("seed", expected, seed)
    return int(seed)


def _checked_quick(quick: Any) -> bool | None:
    if quick is not None and not isinstance(quick, bool):
        raise wrong_type("quick", "True, False or None", quick)
    return quick


def _finite(drawn: Array, settings: Settings) -> Floats:
    drawn = wide(drawn)
    if not np.isfinite(drawn).all():
        raise ConformanceError(f"coefficients that are not finite, at {settings}")
    return drawn


def _output(x: Array, output: Any, what: str) -> Array:
    if not isinstance(output, np.ndarray | np.generic):  # NumPy makes scalars of arrays of no axes
        raise ConformanceError(f"{what}: expected a NumPy array, received {type(output).__name__}")
    array: Array = np.asarray(output)
    if array.shape != x.shape:
        raise ConformanceError(f"{what}: expected the shape {x.shape}, received {array.shape}")
    if array.dtype.kind != "f" and array.dtype.name != "bfloat16":  # to NumPy that is of no kind
        raise ConformanceError(f"{what}: expected the dtype {x.dtype}, received {array.dtype}")
    return array
