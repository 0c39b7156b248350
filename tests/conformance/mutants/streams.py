"""Random streams that are seeded, moved on or reset wrongly."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
from recipe import RNG, Recipe, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.table import table


@caught_by("calls-independent")
class StreamReused(Recipe):
    """The seed is set again in each call."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        return [self.apply(x, seed=seed, **settings) for _ in range(count)]


@caught_by("calls-independent")
class TwoMasksInTurn(Recipe):
    """Two masks are kept and used in turn."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        two = super().calls(x, count=2, seed=seed, **settings)
        return [two[call % 2] for call in range(count)]


@caught_by("seed-plus-call")
class SeedPlusCounter(Recipe):
    """Call k of seed s draws from seed s + k."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        return [self.apply(x, seed=seed + call, **settings) for call in range(count)]


@caught_by("neighbouring-seeds")
class SeedLosesLastBit(Recipe):
    def source(self, seed: int) -> RNG:
        return super().source(seed // 2)


@caught_by("neighbouring-seeds")
class SeedPlusPosition(Recipe):
    """Unit i of seed s draws from a hash of s + i."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        words = np.arange(math.prod(mask_shape), dtype=np.uint64) + np.uint64(self.seed)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
        law = Dilution(s.rate, s.alpha, vary=s.vary, unit_mean=s.unit_mean)
        return table(law).values[0, words >> np.uint64(48)].reshape(mask_shape)

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)


@caught_by("seeds-independent")
class SeedIgnored(Recipe):
    def source(self, seed: int) -> RNG:
        return super().source(0)


@caught_by("determinism")
class SeedNotUsed(Recipe):
    """A fresh generator in each call, whatever the seed."""

    def source(self, seed: int) -> RNG:
        return np.random.default_rng()


@caught_by("determinism")
class GlobalGenerator(Recipe):
    """The seed is combined with a number from NumPy's global generator."""

    def source(self, seed: int) -> RNG:
        return super().source(seed + int(np.random.randint(2)))  # noqa: NPY002


@caught_by("determinism")
class GradientDrawsMore(Recipe):
    """Asking for a gradient moves the stream on first."""

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        rng = self.source(seed)
        rng.random()
        return self.step(x, upstream, Settings(**settings), rng)


@caught_by("layer-determinism")
class LayerFromClock(Recipe):
    """A layer's calls are seeded by the clock."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        rng = np.random.default_rng()
        return [self.step(x, x, Settings(**settings), rng)[0] for _ in range(count)]


@caught_by("global-state")
class GlobalReseeded(Recipe):
    def source(self, seed: int) -> RNG:
        np.random.seed(seed)  # noqa: NPY002
        return super().source(seed)


@caught_by("global-state")
class PythonReseeded(Recipe):
    def source(self, seed: int) -> RNG:
        return super().source(random.Random(seed).getrandbits(31) + 0 * random.getrandbits(1))
