"""Units that are treated differently for where they are, or for the size of their call."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings

KEPT = 0xFFFF  # the last cell of a table, which is never a dropped one


@caught_by("drop-by-place")
class FirstOfRowKept(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if len(shape) > 1:
            cells[..., 0] = KEPT
        return cells


@caught_by("drop-by-place")
class LastOfOddRowKept(Port):
    """Units are drawn two at a time, and the odd one out is forgotten."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if shape and shape[-1] % 2 and shape[-1] > 1:
            cells[..., -1] = KEPT
        return cells


@caught_by("drop-by-place")
class EveryThirteenthDroppedMore(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        flat = cells.reshape(-1)
        flat[5::13] //= 2
        return cells


@caught_by("size-by-place")
class FirstChannelIsDropout(Port):
    """The first channel is dropped as often as the others, but its sizes are pulled together."""

    def forward(self, x: Array, c: Array) -> Array:
        if c.ndim == 3 and c.shape[1] > 1:
            c = c.copy()
            first = c[:, 0]
            first[first > 0] = np.mean(first[first > 0])
        return super().forward(x, c)


@caught_by("call-sizes")
class LastOfCallKept(Port):
    """The last unit of a call whose size is no multiple of four is kept."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if math.prod(shape) % 4:
            cells.reshape(-1)[-1] = KEPT
        return cells


@caught_by("call-sizes")
class FirstOfCallDropped(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        cells.reshape(-1)[:1] = 0
        return cells


@caught_by("call-sizes")
class FewUnitsAreKept(Port):
    """Calls of fewer than four units are let through."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        return cells if math.prod(shape) >= 4 else np.full(shape, KEPT)


@caught_by("call-sizes")
class NoAxesNoDraw(Port):
    """An array without axes comes back as it is."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        return super().step(x, upstream, s, rng) if x.ndim else (x, upstream)


@caught_by("call-sizes")
class TailIsCopied(Port):
    """Units are drawn eight at a time; those left over get the bits of the first ones."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        flat, left = cells.reshape(-1), math.prod(shape) % 8
        if left and flat.size > 8:
            flat[-left:] = flat[:left]
        return cells


@caught_by("no-repeats")
class RepeatsAfterTwoToThe22(Port):
    """A generator with a short period, which no small call shows."""

    period = 2**22

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        units = math.prod(shape)
        once = super().cells(s, (min(units, self.period),), rng)
        return np.resize(once, units).reshape(shape)


@caught_by("no-repeats")
class MasksRepeat(RepeatsAfterTwoToThe22):
    """Masks come again after 2²⁰ units, with other sizes."""

    period = 2**20

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        once = super().cells(s, shape, rng)
        dropped = round(s.rate * 2**16)
        fresh = rng.integers(dropped, 2**16, size=shape)
        return np.where(once < dropped, once, fresh)


@caught_by("large-call")
class LargeBatchesInParts(Port):
    """A large batch is drawn 4,096 samples at a time, each time from the same seed."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if not shape or shape[0] <= 4096:
            return super().cells(s, shape, rng)
        part = super().cells(s, (4096, *shape[1:]), rng)
        return np.concatenate([part] * (-(-shape[0] // 4096)))[: shape[0]]


@caught_by("large-call")
class LateSamplesDroppedMore(Port):
    """From sample 8,192 on more is dropped."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if shape and shape[0] > 8192:
            cells[8192:] -= cells[8192:] // 8
        return cells


@caught_by("empty-inputs")
class EmptyRaises(Port):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if x.size == 0:
            raise RuntimeError("cannot draw from an empty tensor")
        return super().step(x, upstream, s, rng)


@caught_by("empty-inputs")
class EmptyLosesItsShape(Port):
    def apply(self, x: Array, *, seed: int, **settings: Any) -> Array:
        return super().apply(x, seed=seed, **settings) if x.size else np.empty(0, x.dtype)
