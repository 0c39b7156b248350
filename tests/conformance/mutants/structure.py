"""Structure that no single distance shows: mirrors, counts, long blocks, groups among each other."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.dependence import Flat
from mutants.places import KEPT
from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


class MasksOnly(Port):
    """Masks are spoilt in calls of some size; kept sizes are fresh, so that no value comes twice."""

    least = 10_000

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        below = round(s.rate * 2**16)
        if math.prod(shape) < self.least or not 0 < below < 2**16:
            return cells
        dropped = self.spoil_masks(cells < below)
        fresh = rng.integers(0, below, shape), rng.integers(below, 2**16, shape)
        return np.where(dropped, *fresh)

    def spoil_masks(self, dropped: Array) -> Array:
        raise NotImplementedError


@caught_by("symmetries")
class MasksReadTheSameBackwards(MasksOnly):
    def spoil_masks(self, dropped: Array) -> Array:
        flat = dropped.reshape(-1)
        half = flat.size // 2
        flat[-half:] = flat[:half][::-1]
        return dropped


@caught_by("symmetries")
class MasksOfRowsMirrored(MasksOnly):
    def spoil_masks(self, dropped: Array) -> Array:
        half = dropped.shape[-1] // 2
        dropped[..., dropped.shape[-1] - half :] = dropped[..., :half][..., ::-1]
        return dropped


@caught_by("symmetries")
class MasksOfSquaresSymmetric(MasksOnly):
    def spoil_masks(self, dropped: Array) -> Array:
        if dropped.ndim < 2 or dropped.shape[-1] != dropped.shape[-2]:
            return dropped
        lower = np.tri(dropped.shape[-1], dtype=bool)
        return np.where(lower, dropped, np.swapaxes(dropped, -1, -2))


@caught_by("symmetries")
class LastQuarterIsOpposite(Flat):
    """In a large call the last quarter has 1 − u where the first has u."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        quarter = cells.size // 4
        if cells.size > 10_000:
            cells[-quarter:] = ~cells[:quarter]
        return cells


class Stratified(Port):
    """Units get the ranks of a permutation, so that as many are dropped each time."""

    @staticmethod
    def ranks(rng: RNG, shape: Shape) -> Array:
        order = np.argsort(rng.random(shape), axis=0)
        return ((order + rng.random(shape)) * (2**16 / shape[0])).astype(np.uint16)


@caught_by("counts-vary")
class LargeCallsDropTheSameNumber(Stratified):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.prod(shape) < 1000:
            return super().cells(s, shape, rng)
        return self.ranks(rng, (math.prod(shape),)).reshape(shape)


@caught_by("counts-vary")
class SameNumberButAtOneHalf(Stratified):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if s.rate == 0.5 or not shape:
            return super().cells(s, shape, rng)
        return self.ranks(rng, (math.prod(shape),)).reshape(shape)


@caught_by("counts-vary")
class EachUnitDroppedInAsManySamples(Stratified):
    """In a batch of hundreds each unit is dropped in a fixed number of samples."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if len(shape) != 2 or shape[0] < 256:
            return super().cells(s, shape, rng)
        return self.ranks(rng, shape)


class LastOfBlocksKept(Flat):
    """The last unit of each block is kept, in calls of many blocks."""

    block: int

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if cells.size > 16 * self.block:
            cells[self.block - 1 :: self.block] = KEPT
        return cells


@caught_by("drop-by-place")
class LastOf1000Kept(LastOfBlocksKept):
    block = 1000


@caught_by("large-call")
class LastOf65536Kept(LastOfBlocksKept):
    block = 2**16


@caught_by("call-sizes")
class LastPartialBlockDropsLess(Flat):
    """What is left over after whole blocks of 128 is dropped two times in three as often."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        left = cells.size % 128
        if left and cells.size > 128:
            last = cells[-left:]
            last[rng.random(left) < 0.3] = KEPT
        return cells


@caught_by("call-sizes")
class LastOddRowHasTheMaskBeforeIt(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        below = round(s.rate * 2**16)
        if len(shape) > 1 and shape[0] % 2 and shape[0] > 1 and 0 < below < 2**16:
            rest = shape[1:]
            fresh = rng.integers(0, below, rest), rng.integers(below, 2**16, rest)
            cells[-1] = np.where(cells[-2] < below, *fresh)
        return cells


@caught_by("windows-independent")
class ThirdIsParityAtHighRates(Flat):
    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if s.rate > 0.62:
            threes = cells[: cells.size // 3 * 3].reshape(-1, 3)
            threes[:, 2] = threes[:, 0] ^ threes[:, 1]
        return cells


# --- groups --------------------------------------------------------------------------------------


@caught_by("broadcast-law")
class FirstMapOfASampleKept(Port):
    """With shared axes, the first of several groups of a sample is kept."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if s.broadcast_dims and len(shape) > 1 and shape[1] > 1:
            cells[:, 0] = KEPT
        return cells


@caught_by("broadcast-law")
class FirstGroupOfACallKept(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if s.broadcast_dims and cells.size > 1:
            cells.reshape(-1)[0] = KEPT
        return cells


class SharedP(Port):
    """With a shared probability another law is drawn, in some cases."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            s = self.instead(s, p_shape)
        return super().coefficients(s, mask_shape, p_shape, rng)

    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        raise NotImplementedError


@caught_by("p-granularity-law")
class BothKindsOfSharingVaryTheSizeAlone(SharedP):
    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return replace(s, vary="q") if s.broadcast_dims and s.vary == "pq" else s


@caught_by("p-granularity-law")
class BothKindsOfSharingDropLess(SharedP):
    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return replace(s, rate=0.8 * s.rate) if s.broadcast_dims else s


@caught_by("p-granularity-law")
class OneProbabilityForAllHardlyVaries(SharedP):
    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return replace(s, alpha=50 * s.alpha) if math.prod(p_shape) == 1 else s


class OwnMasks(Port):
    """With a shared probability, masks are drawn from uniform numbers that are spoilt."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        p, u = self.p(s, p_shape, rng), self.uniform(mask_shape, rng, s)
        keep = u < (1 - s.rate if s.vary == "q" else p)
        return self.size(p, s) * keep / self.gain(s)

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        raise NotImplementedError


@caught_by("p-granularity-law")
class UnitsOfOtherGroupsShareNumbers(OwnMasks):
    """Unit i of a group and unit i + 1 of the next one share the number that decides."""

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        u = rng.random(shape)
        if u.ndim > 1 and s.vary == "q":
            u[1::2, 1:] = u[: len(u) // 2 * 2 : 2, :-1]
        return u


@caught_by("tiny-rate")
class SharedMasksOfBytes(OwnMasks):
    """With a shared probability eight bits decide."""

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        return rng.integers(256, size=shape) / 256


@caught_by("resolution")
class SharedProbabilityOfBytes(Port):
    """A shared probability is one of 256."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return (np.floor(super().p(s, shape, rng) * 256) + 0.5) / 256

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None or math.isinf(s.alpha):
            return super().coefficients(s, mask_shape, p_shape, rng)
        p = self.p(s, p_shape, rng)
        return self.size(p, s) * self.mask(p, s, mask_shape, rng) / self.gain(s)
