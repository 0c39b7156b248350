"""Wrong laws: how often a unit is dropped, and what becomes of it if not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from recipe import RNG, Recipe, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.table import table


@caught_by("drop-probability")
class BetaInverted(Recipe):
    """β = α·p̄/rate."""

    def beta(self, s: Settings) -> float:
        return s.alpha * (1 - s.rate) / s.rate


@caught_by("drop-probability")
class AlphaAndBetaSwapped(Recipe):
    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().p(s, shape, rng) if math.isinf(s.alpha) else 1 - super().p(s, shape, rng)


@caught_by("drop-probability")
class BetaForgetsRetain(Recipe):
    """β = α·rate, without the division by p̄."""

    def beta(self, s: Settings) -> float:
        return s.alpha * s.rate


@caught_by("drop-probability")
class RateIsRetain(Recipe):
    """The rate is taken for the probability of keeping, as some frameworks once had it."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.validate(x, s)
        rate = s.rate if not s.training or s.rate in (0, 1) else 1 - s.rate
        return super().step(x, upstream, replace(s, rate=rate), rng)


@caught_by("drop-probability")
class RateOffByOnePercent(Recipe):
    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        missed = s.rate * 0.01 / (1 - s.rate)
        return super().mask(p, s, shape, rng) & (rng.random(shape, np.float32) >= missed)


@caught_by("drop-probability")
class MaskKeepsBelowRate(Recipe):
    """The comparison is the wrong way round, so that 1 − p is the probability of keeping."""

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        return ~super().mask(p, s, shape, rng)


@caught_by("tiny-rate")
class OneTableOnly(Recipe):
    """The rate is rounded to the cells of one table, so tiny rates vanish."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        law = Dilution(s.rate, s.alpha, vary=s.vary, unit_mean=s.unit_mean)
        return table(law).values[0, rng.integers(2**16, size=mask_shape)]


@caught_by("kept-values")
class SizeOfDropout(Recipe):
    """q = 1/p̄."""

    def size(self, p: Array, s: Settings) -> Array:
        return np.full_like(p, 1 / (1 - s.rate))


@caught_by("kept-values")
class SizeWithoutSquare(Recipe):
    """q = p/p̄."""

    def size(self, p: Array, s: Settings) -> Array:
        return p / (1 - s.rate)


@caught_by("kept-values")
class SizeInverted(Recipe):
    """q = 1/p, which makes every unit unbiased on its own."""

    def size(self, p: Array, s: Settings) -> Array:
        return 1 / np.maximum(p, 1e-30)


@caught_by("kept-values")
class MaskFromMean(Recipe):
    """The mask is drawn with p̄, the size with p."""

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        return rng.random(shape, np.float32) < 1 - s.rate


@caught_by("kept-values")
class TwoProbabilities(Recipe):
    """The mask and the size each draw a p of their own."""

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().mask(self.p(s, p.shape, rng), s, shape, rng)


@caught_by("kept-values")
class AlphaOffByTenPercent(Recipe):
    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().p(replace(s, alpha=1.1 * s.alpha), shape, rng)


@caught_by("kept-values")
class AlphaTenPercentLow(Recipe):
    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().p(replace(s, alpha=s.alpha / 1.1), shape, rng)


@caught_by("kept-values")
class ClippedProbability(Recipe):
    """p is kept away from 0 and 1, "for stability"."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return np.clip(super().p(s, shape, rng), 0.01, 0.99)


@caught_by("kept-values")
class NormalInsteadOfBeta(Recipe):
    """p is normal with the right mean and variance, cut off at 0 and 1."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.isinf(s.alpha):
            return super().p(s, shape, rng)
        var = s.rate * (1 - s.rate) / (s.alpha + self.beta(s) + 1)
        return np.clip(rng.normal(1 - s.rate, var**0.5, shape), 0, 1)


@caught_by("resolution")
class HalfPrecisionProbability(Recipe):
    """p is rounded to float16."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().p(s, shape, rng).astype(np.float16).astype(np.float64)


@caught_by("resolution")
class SmallTable(Recipe):
    """A table of 2¹⁰ cells."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        law = Dilution(s.rate, s.alpha, vary=s.vary, unit_mean=s.unit_mean)
        return law.ppf((np.arange(1024) + 0.5) / 1024)[rng.integers(1024, size=mask_shape)]


@caught_by("mean")
class RatioAfterMask(Recipe):
    """p is divided by the mean of what the mask has left of it, not by p̄²."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return c / max(np.mean(c), 1e-30)


@caught_by("mean")
class MeanNormalisedUnasked(Recipe):
    def gain(self, s: Settings) -> float:
        return Dilution(s.rate, s.alpha, vary=s.vary).mean


@caught_by("mean")
class MeanOffByOnePercent(Recipe):
    def size(self, p: Array, s: Settings) -> Array:
        return 1.01 * super().size(p, s)


@caught_by("second-moment")
class SizesShrunk(Recipe):
    """Sizes are pulled halfway towards their mean."""

    def size(self, p: Array, s: Settings) -> Array:
        size = super().size(p, s)
        return (size + size.mean()) / 2


@caught_by("second-moment")
class SizesWithNoise(Recipe):
    """Every size has a noise of mean 1 on top."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return c * rng.choice([0.8, 1.2], c.shape)
