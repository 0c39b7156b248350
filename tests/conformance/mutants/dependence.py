"""Units that depend on each other: in pairs far apart, in threes, in their counts."""

from __future__ import annotations

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


class Flat(Port):
    """The cells of a call, one after the other, are spoilt."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng).reshape(-1)
        return self.spoil(cells, s, rng).reshape(shape)

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        raise NotImplementedError


@caught_by("units-independent")
class NeighboursShareButAtOneHalf(Flat):
    """Two units share their bits, at all rates but the one that was tried."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if s.rate != 0.5:
            cells[1::2] = cells[: cells.size // 2 * 2 : 2]
        return cells


class Copies(Flat):
    """Some units are copies of those some distance before."""

    distance: int
    share = 1.0

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if cells.size > 2 * self.distance:
            copied = (np.arange(cells.size) // self.distance) % 2 == 1
            copied &= rng.random(cells.size) < self.share
            cells[copied] = cells[np.flatnonzero(copied) - self.distance]
        return cells


@caught_by("units-independent")
class CopiesSevenApart(Copies):
    distance = 7


@caught_by("units-independent")
class CopiesFarApart(Copies):
    """One unit in ten is a copy of one 12,345 before."""

    distance, share = 12_345, 0.1


@caught_by("units-independent")
class CopiesHalfACallApart(Copies):
    distance = 60_001


@caught_by("units-independent")
class CopiesInVaryQ(Copies):
    """Units three apart share their bits, but only where sizes alone vary."""

    distance = 3

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        return super().spoil(cells, s, rng) if s.vary == "q" else cells


@caught_by("units-independent")
class MirroredOrNot(Flat):
    """Every other unit is its neighbour or its opposite, at random: only squares depend."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        pairs = cells[: cells.size // 2 * 2].reshape(-1, 2)
        mirrored = rng.random(len(pairs)) < 0.5
        pairs[:, 1] = np.where(mirrored, ~pairs[:, 0], pairs[:, 0])
        return cells


@caught_by("units-independent")
class NextByMultiplication(Flat):
    """Every other unit's bits are five times its neighbour's."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        pairs = cells[: cells.size // 2 * 2].reshape(-1, 2)
        pairs[:, 1] = pairs[:, 0] * np.uint16(5)
        return cells


class Threes(Flat):
    """The third of three units is made of the other two, any two of which are independent."""

    gaps = (1, 2)

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        span = 3 * self.gaps[0]
        blocks = cells[: cells.size // span * span].reshape(-1, 3, self.gaps[0])
        blocks[:, 2] = self.third(blocks[:, 0], blocks[:, 1])
        return cells

    def third(self, one: Array, two: Array) -> Array:
        return one ^ two


@caught_by("triples-independent")
class ThirdIsParity(Threes):
    pass


@caught_by("triples-independent")
class ThirdIsParityRowsApart(Threes):
    """The same, 64 units apart: three rows of a feature map."""

    gaps = (64, 128)


@caught_by("triples-independent")
class ThirdIsSum(Threes):
    def third(self, one: Array, two: Array) -> Array:
        return one + two


@caught_by("triples-independent")
class RowsPlusColumns(Port):
    """The bits of a unit are those of its row plus those of its column."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if len(shape) < 2:
            return super().cells(s, shape, rng)
        rows = super().cells(s, (*shape[:-1], 1), rng)
        columns = super().cells(s, (*shape[:-2], 1, shape[-1]), rng)
        return rows + columns


@caught_by("windows-independent")
class SixthIsParity(Flat):
    """The first bit of every sixth unit is the parity of those of the five before it."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        blocks = cells[: cells.size // 6 * 6].reshape(-1, 6)
        top = np.bitwise_xor.reduce(blocks[:, :5] >> 15, axis=1)
        blocks[:, 5] = (blocks[:, 5] & 0x7FFF) | (top << 15)
        return cells


@caught_by("counts-vary")
class FixedShareOfARow(Flat):
    """Every 64 units hold a permutation of 64 strata, "to reduce the variance"."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        blocks = cells[: cells.size // 64 * 64].reshape(-1, 64)
        strata = rng.permuted(np.tile(np.arange(64, dtype=np.uint16), (len(blocks), 1)), axis=1)
        blocks[:] = (blocks & 0x3FF) | (strata << 10)
        return cells


@caught_by("counts-vary")
class RateVariesByCall(Port):
    """A call drops more, or fewer, units than another: the rate is right on average only."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        pull = rng.random(shape) < 0.04
        return np.where(pull, np.uint16(rng.integers(2) * 0xFFFF), cells)


@caught_by("resolution")
class StockOfCoefficients(Port):
    """Coefficients are picked from 10,000 that were drawn once."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().cells(s, (10_000,), rng)[rng.integers(10_000, size=shape)]
