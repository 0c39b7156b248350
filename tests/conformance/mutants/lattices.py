"""Three units that depend on each other: in sums far apart, at high rates, on a lattice."""

from __future__ import annotations

import math

import numpy as np
from recipe import RNG

from mutants.dependence import Flat
from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


class LaggedFibonacci(Flat):
    """Each number is the sum of two that came a while before, as in generators of the past."""

    short: int
    long: int

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        for start in range(self.long, cells.size, self.short):
            end = min(start + self.short, cells.size)
            near = cells[start - self.short : end - self.short]
            cells[start:end] = near + cells[start - self.long : end - self.long]
        return cells


@caught_by("triples-independent")
class LaggedFibonacci1279(LaggedFibonacci):
    short, long = 418, 1279


class ThirdOfThree(Flat):
    """The third of three units, a gap apart from each other, is made of the other two."""

    gap = 1

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        span = 3 * self.gap
        if self.dependent(s):
            threes = cells[: cells.size // span * span].reshape(-1, 3, self.gap)
            threes[:, 2] = self.third(threes[:, 0], threes[:, 1])
        return cells

    def dependent(self, s: Settings) -> bool:
        return True

    def third(self, one: Array, two: Array) -> Array:
        return one ^ two


@caught_by("triples-independent")
class ThirdIsSumFarApart(ThirdOfThree):
    gap = 333

    def third(self, one: Array, two: Array) -> Array:
        return one + two


@caught_by("triples-independent")
class ThirdIsParityAboveThreeQuarters(ThirdOfThree):
    """At rates where a fair coin shows next to nothing of what is dropped."""

    def dependent(self, s: Settings) -> bool:
        return bool(s.rate > 0.75)


@caught_by("triples-independent")
class ThirdMaskIsParityInSparseDropout(ThirdOfThree):
    def dependent(self, s: Settings) -> bool:
        return bool(s.rate > 0.75 and math.isinf(s.alpha))


@caught_by("no-lattice")
class OnALattice(Flat):
    """RANDU: a congruential generator whose triples lie on fifteen planes."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        powers = np.ones(cells.size, np.uint64)
        done = 1
        while done < cells.size:
            more = min(done, cells.size - done)
            step = np.uint64(pow(65_539, done, 2**31))
            powers[done : done + more] = powers[:more] * step % np.uint64(2**31)
            done += more
        start = np.uint64(2 * rng.integers(2**29) + 1)
        return np.asarray((powers * start % np.uint64(2**31)) >> np.uint64(15)).astype(np.uint16)


@caught_by("no-lattice")
class ThirdIsThreeTimesAndFiveTimes(ThirdOfThree):
    """A sum of multiples, which halves and quarters show next to nothing of."""

    def third(self, one: Array, two: Array) -> Array:
        return np.uint16(3) * one + np.uint16(5) * two
