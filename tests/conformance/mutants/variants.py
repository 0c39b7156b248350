"""Wrong variants, and wrong limits."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from recipe import RNG, Recipe, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution


@caught_by("vary-q")
class VaryIgnored(Recipe):
    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        return super().coefficients(replace(s, vary="pq"), mask_shape, p_shape, rng)


@caught_by("vary-p")
class VaryMixedUp(Recipe):
    """Variant "p" varies q, and the other way round."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        other = {"p": "q", "q": "p", "pq": "pq"}[s.vary]
        return super().coefficients(replace(s, vary=other), mask_shape, p_shape, rng)


@caught_by("vary-q")
class SizeBiasedVaryQ(Recipe):
    """The table of QSD proper, Beta(α + 1, β), is used for vary="q" too."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if s.vary != "q" or math.isinf(s.alpha):
            return super().p(s, shape, rng)
        return rng.beta(s.alpha + 1, self.beta(s), shape)


@caught_by("unit-mean")
class UnitMeanIgnored(Recipe):
    def gain(self, s: Settings) -> float:
        return 1.0


@caught_by("unit-mean")
class UnitMeanTwice(Recipe):
    def gain(self, s: Settings) -> float:
        return super().gain(s) ** 2


@caught_by("dropout-limit")
class InfinityIsIdentity(Recipe):
    """At α = inf nothing varies, so nothing is done."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if math.isinf(s.alpha):
            return np.ones(mask_shape)
        return super().coefficients(s, mask_shape, p_shape, rng)


@caught_by("dropout-limit")
class InfinityIsNaN(Recipe):
    """α/(α + β) is taken literally."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.isinf(s.alpha):
            return np.full(shape, s.alpha / (s.alpha + self.beta(s)))
        return super().p(s, shape, rng)


@caught_by("dropout-limit")
class InfinityUnscaled(Recipe):
    """At α = inf kept units are not scaled."""

    def size(self, p: Array, s: Settings) -> Array:
        return np.ones_like(p) if math.isinf(s.alpha) else super().size(p, s)


@caught_by("extreme-alpha")
class TwoGammas(Recipe):
    """p = g/(g + h) of two float32 gamma variates, which underflow at small α."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.isinf(s.alpha):
            return super().p(s, shape, rng)
        g, h = (rng.standard_gamma(a, shape).astype(np.float32) for a in (s.alpha, self.beta(s)))
        with np.errstate(invalid="ignore"):
            return g / (g + h)


@caught_by("extreme-alpha")
class TwoGammasPatched(Recipe):
    """The same, with 0/0 replaced by p̄ so that nothing is NaN."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.isinf(s.alpha):
            return super().p(s, shape, rng)
        g, h = (rng.standard_gamma(a, shape).astype(np.float32) for a in (s.alpha, self.beta(s)))
        with np.errstate(invalid="ignore"):
            return np.where(g + h > 0, g / (g + h), 1 - s.rate)


@caught_by("eval-identity")
class EvalScales(Recipe):
    """Out of training the input is multiplied by E[c], "to keep the mean"."""

    def resting(self, x: Array, s: Settings) -> Array:
        mean = Dilution(s.rate, s.alpha, vary=s.vary).mean if 0 < s.rate < 1 else 1.0
        return (x * mean).astype(x.dtype)


@caught_by("eval-identity")
class EvalStillDrops(Recipe):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        return super().step(x, upstream, replace(s, training=True), rng)


@caught_by("eval-identity")
class EvalGradientDiluted(Recipe):
    """Out of training the output is right, but its gradient is not."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, _ = super().step(x, upstream, s, rng)
        return output, super().step(x, upstream, replace(s, training=True), rng)[1]


@caught_by("rate-zero-identity")
class RateZeroDraws(Recipe):
    """Rate 0 is not special: β = 0, which is no beta distribution."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if s.training and s.rate == 0:
            c = self.coefficients(s, *self.shapes(x.shape, s), rng)
            return self.forward(x, c), self.forward(upstream, c)
        return super().step(x, upstream, s, rng)


@caught_by("rate-zero-identity")
class RateZeroSwitchesOff(Recipe):
    """``if not rate`` stands where ``if rate == 1`` was meant."""

    def resting(self, x: Array, s: Settings) -> Array:
        return np.zeros_like(x) if s.training else x


@caught_by("rate-one-zeros")
class RateOneIsNaN(Recipe):
    """0 · (1/0) at rate 1."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, gradient = super().step(x, upstream, s, rng)
        if s.rate == 1 and s.training:
            return np.full_like(output, np.nan), gradient
        return output, gradient


@caught_by("rate-one-zeros")
class RateOneGradient(Recipe):
    """The output at rate 1 is right; its gradient is 0/0."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, gradient = super().step(x, upstream, s, rng)
        if s.rate == 1 and s.training:
            return output, np.full_like(gradient, np.nan)
        return output, gradient
