"""Seeds, calls and settings that take something over from the one beside them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.register import caught_by
from mutants.series import Called
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.keys import LEVELS
from quantal.table import shared_table


class KnowsItsSeed(Port):
    """A port that does more with a seed than to hand it on; a layer's calls have one each."""

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return np.random.default_rng(seed)

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        words = np.random.default_rng(seed).integers(2**40, size=count)
        s = Settings(**settings)
        return [self.step(x, x, s, self.source(int(word)))[0] for word in words]


@caught_by("seeds-by-place")
class FirstUnitAfterOneStep(KnowsItsSeed):
    """The first unit is one step of a congruential generator away from the seed."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if cells.size:
            cells.reshape(-1)[0] = self.seed * 16_807 % (2**31 - 1) >> 15
        return cells


@caught_by("seeds-by-place")
class SecondUnitAfterTwoSteps(KnowsItsSeed):
    """The second unit is two steps away: seeds in a row go round in even strides."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if cells.size > 1:
            cells.reshape(-1)[1] = self.seed * 16_807**2 % (2**31 - 1) >> 15
        return cells


@caught_by("seeds-by-place")
class SmallSeedsBeginSmall(KnowsItsSeed):
    """A shift register that is not warmed up: of small seeds the first numbers are small."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells, word = super().cells(s, shape, rng), (self.seed or 1) & 0xFFFFFFFF
        for place in range(min(8, cells.size)):
            word ^= word << 13 & 0xFFFFFFFF
            word ^= word >> 17
            word ^= word << 5 & 0xFFFFFFFF
            cells.reshape(-1)[place] = word >> 16
        return cells


class FromElsewhere(KnowsItsSeed):
    """Shared probabilities are drawn from a generator of their own."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        shared = shared_table(s.law)
        cell = self.elsewhere().integers(2**16, size=p_shape)
        keep = rng.integers(LEVELS, size=mask_shape) < shared.keep_below[cell]
        return np.where(keep, shared.values[cell], np.float32(0))

    def elsewhere(self) -> RNG:
        raise NotImplementedError


@caught_by("copies-between-calls")
class SharedProbabilitiesOfTwoSeeds(FromElsewhere):
    """Two neighbouring seeds share their probabilities, but not their masks."""

    def elsewhere(self) -> RNG:
        return np.random.default_rng(self.seed // 2)


@caught_by("copies-between-calls")
class SharedProbabilitiesStay(FromElsewhere):
    """A layer draws its shared probabilities once, as if they were weights."""

    of_layer: int | None = None

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        self.of_layer = seed
        try:
            return super().calls(x, count=count, seed=seed, **settings)
        finally:
            self.of_layer = None

    def elsewhere(self) -> RNG:
        return np.random.default_rng([7, self.seed if self.of_layer is None else self.of_layer])


@caught_by("seed-plus-call")
class SeedAndCallInOneWord(Called):
    """The number of the call stands in the upper bits of the seed."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return self.step(x, x, s, self.source(seed ^ (number << 20)))[0]


class OneStream(KnowsItsSeed):
    """All seeds read one stream, each from a place of its own on."""

    apart: int

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        first = self.seed * self.apart % 2**63
        word = np.arange(math.prod(shape), dtype=np.uint64) + np.uint64(first)
        word *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray((word >> np.uint64(40)).astype(np.uint16)).reshape(shape)


@caught_by("no-repeats")
class SeedsAMillionUnitsApart(OneStream):
    apart = 2**20


@caught_by("no-repeats")
class RowsOf16Bits(Port):
    """Bits go by the number of a row, of which there are 65,536."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if len(shape) > 1 and shape[0] > 2**16:
            cells = cells[np.arange(shape[0]) % 2**16]
        return cells


class Remembers(Port):
    """Laws are kept, under a key that two of them may share."""

    def __init__(self) -> None:
        self.kept: dict[Any, Dilution] = {}

    def law(self, s: Settings) -> Dilution:
        return self.kept.setdefault(self.key(s), s.law)

    def key(self, s: Settings) -> Any:
        raise NotImplementedError


@caught_by("settings-matter")
class RemembersRoundedAlpha(Remembers):
    def key(self, s: Settings) -> Any:
        return s.rate, round(s.alpha, 1) if s.alpha > 0.5 else s.alpha, s.vary, s.unit_mean


@caught_by("settings-matter")
class RemembersRoundedRate(Remembers):
    def key(self, s: Settings) -> Any:
        rate = round(s.rate, 2) if 0.05 < s.rate < 0.95 else s.rate
        return rate, s.alpha, s.vary, s.unit_mean


@caught_by("call-sizes")
class SmallCallsRememberTheRate(Remembers):
    """Calls of a few units have a way of their own, whose tables go by the rate alone."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None and math.prod(mask_shape) <= 16:
            first = Remembers.law(self, s)
            s = replace(s, alpha=first.alpha, vary=first.vary, unit_mean=first.unit_mean)
        return super().coefficients(s, mask_shape, p_shape, rng)

    def law(self, s: Settings) -> Dilution:
        return s.law

    def key(self, s: Settings) -> Any:
        return s.rate
