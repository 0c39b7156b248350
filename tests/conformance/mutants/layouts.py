"""Wrong order in memory, wrong axes shared, arrays that do not stay what they were."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

import quantal.numpy
from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


@caught_by("memory-order")
class UnitsInMemoryOrder(Port):
    """Units are taken as they lie in memory, and put back in C order."""

    def forward(self, x: Array, c: Array) -> Array:
        c = np.broadcast_to(c, x.shape)
        y = x.ravel(order="K") * c.ravel()
        return y.reshape(x.shape).astype(x.dtype)


@caught_by("memory-order")
class AxesTurnedInFortranOrder(Port):
    """For an array in Fortran order the axes are counted from the other end."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if x.ndim > 1 and x.flags.f_contiguous and s.broadcast_dims:
            turned = tuple(x.ndim - 1 - axis % x.ndim for axis in s.broadcast_dims)
            s = replace(s, broadcast_dims=turned)
        return super().step(x, upstream, s, rng)


@caught_by("memory-order")
class WritesBetweenUnits(Port):
    """A view of every second unit is processed in place, with what lies between."""

    def forward(self, x: Array, c: Array) -> Array:
        if x.base is not None and x.base.flags.writeable and not x.flags.contiguous:
            x.base[...] = x.base
            x.base.reshape(-1)[1::2] = 0
        return super().forward(x, c)


class FirstAxisOnly(Port):
    """Of several shared axes the first one counts."""

    name_of_axes: str

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        axes = getattr(s, self.name_of_axes)
        super().shapes(shape, s)
        return super().shapes(shape, replace(s, **{self.name_of_axes: axes[:1]}))


@caught_by("broadcast-dims")
class FirstSharedAxisOnly(FirstAxisOnly):
    name_of_axes = "broadcast_dims"


@caught_by("p-granularity")
class FirstSharedProbabilityAxisOnly(FirstAxisOnly):
    name_of_axes = "p_broadcast_dims"


@caught_by("broadcast-dims")
class EverythingBetweenIsShared(Port):
    """Axes 0 and 2 are taken for a slice that has axis 1 in it."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        super().shapes(shape, s)
        axes = [axis % len(shape) for axis in s.broadcast_dims]
        between = tuple(range(min(axes), max(axes) + 1)) if axes else ()
        return super().shapes(shape, replace(s, broadcast_dims=between))


@caught_by("broadcast-law")
class GroupsInPairs(Port):
    """Two neighbouring groups share their bits."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        flat = cells.reshape(-1)
        if s.broadcast_dims:
            flat[1::2] = flat[: flat.size // 2 * 2 : 2]
        return cells


@caught_by("p-granularity-law")
class SharedProbabilitiesInPairs(Port):
    """Two neighbouring groups share their probability."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None or math.isinf(s.alpha):
            return super().coefficients(s, mask_shape, p_shape, rng)
        p = self.p(s, p_shape, rng)
        flat = p.reshape(-1)
        flat[1::2] = flat[: flat.size // 2 * 2 : 2]
        return self.size(p, s) * self.mask(p, s, mask_shape, rng) / self.gain(s)


@caught_by("p-granularity-masks")
class MasksOfAGroupInPairs(Port):
    """With a shared probability, two units a group apart share the number that decides."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None or math.isinf(s.alpha) or p_shape[0] == mask_shape[0]:
            return super().coefficients(s, mask_shape, p_shape, rng)
        p, u = self.p(s, p_shape, rng), rng.random(mask_shape)
        u[2::2] = u[1 : len(u) // 2 * 2 : 2][: len(u[2::2])]
        keep = u < (1 - s.rate if s.vary == "q" else p)
        return self.size(p, s) * keep / self.gain(s)


@caught_by("input-unchanged")
class OutputsInOneBuffer(Port):
    """Outputs of one shape are all written to the same memory."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Array] = {}

    def forward(self, x: Array, c: Array) -> Array:
        buffer = self.buffers.setdefault((x.shape, x.dtype), np.empty_like(x, order="C"))
        buffer[...] = super().forward(x, c)
        return buffer


@caught_by("non-finite-inputs")
class InfinitySpreads(Port):
    """The mean of the input is taken out and put back."""

    def forward(self, x: Array, c: Array) -> Array:
        with np.errstate(invalid="ignore"):
            mean = np.mean(x, dtype=np.float64) if x.size else 0.0
            return ((x - 0 * mean) * c).astype(x.dtype)


@caught_by("linearity")
class ZerosTakeNoBits(Port):
    """Units that are 0 anyway draw nothing, so that the others get other bits."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.skipped = int(np.count_nonzero(x == 0)) if x.ndim else 0
        return super().step(x, upstream, s, rng)

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        rng.integers(2, size=self.skipped)
        return quantal.numpy.coefficients(s.law, mask_shape, p_shape, rng)
