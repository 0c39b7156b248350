"""Wrong implementations, each a mistake that someone could make, with the check that names it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from recipe import RNG, Recipe, Shape

from quantal.conformance.adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.table import table

MUTANTS: dict[type[Recipe], str] = {}


def caught_by(check: str) -> Callable[[type[Recipe]], type[Recipe]]:
    def add(mutant: type[Recipe]) -> type[Recipe]:
        MUTANTS[mutant] = check
        return mutant

    return add


# --- the law: probabilities ----------------------------------------------------------------------


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


# --- the law: sizes ------------------------------------------------------------------------------


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


# --- variants and limits -------------------------------------------------------------------------


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


# --- who shares what -----------------------------------------------------------------------------


class Shares(Recipe):
    """Something is shared along an axis where nothing should be."""

    axis: int
    p_only = False

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        if len(shape) <= self.axis:
            return mask_shape, p_shape
        narrow = tuple(1 if axis == self.axis else n for axis, n in enumerate(mask_shape))
        return (mask_shape, narrow) if self.p_only else (narrow, p_shape)


@caught_by("samples-independent")
class OneProbabilityPerBatch(Shares):
    """p is drawn for one sample and used for the whole batch; masks are drawn for all."""

    axis, p_only = 0, True


@caught_by("samples-independent")
class OneMaskPerBatch(Shares):
    axis = 0


@caught_by("channels-independent")
class MaskSharedOverChannels(Shares):
    axis = 1


@caught_by("channels-independent")
class ProbabilitySharedOverChannels(Shares):
    axis, p_only = 1, True


@caught_by("time-independent")
class MaskSharedOverTime(Shares):
    axis = 2


@caught_by("units-independent")
class BitsUsedTwice(Recipe):
    """Neighbours get the same half of a 32-bit word."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng).copy()
        flat = c.reshape(-1)
        flat[1::2] = flat[: 2 * (flat.size // 2) : 2]
        return c


@caught_by("units-independent")
class StreamWrapsAround(Recipe):
    """A 16-bit counter: the stream repeats after 2¹⁶ units."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return np.resize(c.reshape(-1)[: 2**16], c.shape)


@caught_by("units-independent")
class AntitheticUnits(Recipe):
    """One in fifty pairs of units gets u and 1 − u, "to reduce the variance"."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        size = math.prod(mask_shape)
        u = rng.integers(2**16, size=size)
        paired = (np.arange(size // 2) % 50 == 0).nonzero()[0] * 2
        u[paired + 1] = 2**16 - 1 - u[paired]
        law = Dilution(s.rate, s.alpha, vary=s.vary, unit_mean=s.unit_mean)
        drawn = table(law)
        row = int(rng.integers(2**30) < drawn.threshold)
        return drawn.values[row, u].reshape(mask_shape)


@caught_by("counts-vary")
class ExactNumberDropped(Recipe):
    """Each call drops exactly a share of ``rate`` of its units, chosen at random."""

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        if s.vary != "pq" or p.shape != shape:
            return super().mask(p, s, shape, rng)
        # Those that are kept are sampled without replacement, in proportion to p.
        clocks = rng.exponential(size=p.shape) / np.maximum(p, 1e-30)
        kept = np.zeros(p.size, bool)
        kept[np.argsort(clocks, axis=None)[: round(p.size * (1 - s.rate))]] = True
        return kept.reshape(shape)


@caught_by("broadcast-dims")
class BroadcastIgnored(Recipe):
    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        super().shapes(shape, s)
        return super().shapes(shape, replace(s, broadcast_dims=()))


@caught_by("broadcast-dims")
class NegativeAxesIgnored(Recipe):
    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        super().shapes(shape, s)
        front = tuple(axis for axis in s.broadcast_dims if axis >= 0)
        return super().shapes(shape, replace(s, broadcast_dims=front))


@caught_by("broadcast-dims")
class BroadcastComplement(Recipe):
    """The axes are taken for those that are *not* shared, as in a noise shape."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        super().shapes(shape, s)
        shared = {axis % len(shape) for axis in s.broadcast_dims}
        others = tuple(axis for axis in range(len(shape)) if shared and axis not in shared)
        return super().shapes(shape, replace(s, broadcast_dims=others))


@caught_by("broadcast-law")
class BroadcastByAny(Recipe):
    """Units that share a coefficient are all kept if the mask keeps any of them."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        self.full = shape
        return super().shapes(shape, s)

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        shared = tuple(a for a, n in enumerate(shape) if n != self.full[a])
        return np.any(super().mask(p, s, self.full, rng), axis=shared, keepdims=True)


@caught_by("p-granularity")
class SharedProbabilityIgnored(Recipe):
    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        return super().shapes(shape, s)[0], None


@caught_by("p-granularity")
class SharedProbabilitySharesMask(Recipe):
    """p_broadcast_dims is treated as broadcast_dims."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        return p_shape or mask_shape, None


@caught_by("p-granularity-masks")
class SharedSizeOnly(Recipe):
    """With p_broadcast_dims the size is shared, but masks go by p̄."""

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().mask(p, s if p.shape == shape else replace(s, vary="q"), shape, rng)


@caught_by("p-granularity-law")
class SharedSizeBiased(Recipe):
    """The size-biased law of a single unit, Beta(α + 1, β), is used for shared p too."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None or math.isinf(s.alpha):
            return super().coefficients(s, mask_shape, p_shape, rng)
        p = rng.beta(s.alpha + 1, self.beta(s), p_shape)
        return self.size(p, s) * self.mask(p, s, mask_shape, rng) / self.gain(s)


# --- streams -------------------------------------------------------------------------------------


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


# --- gradients and inputs ------------------------------------------------------------------------


@caught_by("backward-same-draw")
class FreshMaskInBackward(Recipe):
    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return super().backward(upstream, self.coefficients(s, *shapes, rng), s, shapes, rng)


@caught_by("backward-same-draw")
class StraightThrough(Recipe):
    """The gradient passes as if nothing had been done."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return upstream


@caught_by("backward-same-draw")
class BackwardMaskOnly(Recipe):
    """The gradient has the mask but not the size, as in dropout."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return (upstream * (c > 0) / (1 - s.rate)).astype(upstream.dtype)


@caught_by("linearity")
class NegativesLost(Recipe):
    def forward(self, x: Array, c: Array) -> Array:
        return np.maximum(super().forward(x, c), 0)


@caught_by("linearity")
class RescaledToInput(Recipe):
    """The output is rescaled so that its sum of squares is the input's."""

    def forward(self, x: Array, c: Array) -> Array:
        y = x * c
        return (y * np.sqrt(np.sum(x * x) / max(np.sum(y * y), 1e-30))).astype(x.dtype)


@caught_by("input-unchanged")
class InPlace(Recipe):
    def forward(self, x: Array, c: Array) -> Array:
        x *= c.astype(x.dtype)
        return x.copy()


@caught_by("dtype-kept")
class PromotesToDouble(Recipe):
    def forward(self, x: Array, c: Array) -> Array:
        return x * c


@caught_by("dtype-kept")
class GradientInSingle(Recipe):
    """The gradient is float32, whatever the input."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return (upstream * c).astype(np.float32)


@caught_by("half-precision")
class HalfPrecisionUniforms(Recipe):
    """The mask of a float16 input is drawn in float16."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.half = x.dtype == np.float16
        return super().step(x, upstream, s, rng)

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        if not self.half:
            return super().mask(p, s, shape, rng)
        keep = 1 - s.rate if s.vary == "q" else p
        return rng.random(shape, np.float32).astype(np.float16) < np.float16(keep)


@caught_by("half-precision")
class HalfPrecisionGammas(HalfPrecisionUniforms):
    """The beta variate of a float16 input is made of two float16 gamma variates."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if not self.half or math.isinf(s.alpha):
            return super().p(s, shape, rng)
        g, h = (rng.standard_gamma(a, shape).astype(np.float16) for a in (s.alpha, self.beta(s)))
        with np.errstate(invalid="ignore"):
            return g / (g + h)


@caught_by("bad-input")
class RateClipped(Recipe):
    """A rate out of range is silently brought into it."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        return super().step(x, upstream, replace(s, rate=float(np.clip(s.rate, 0, 1))), rng)


@caught_by("bad-input")
class IntegersAccepted(Recipe):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if np.issubdtype(x.dtype, np.integer):
            x, upstream = x.astype(np.float32), upstream.astype(np.float32)
        return super().step(x, upstream, s, rng)


@caught_by("bad-input")
class AlphaMadePositive(Recipe):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        return super().step(x, upstream, replace(s, alpha=abs(s.alpha)), rng)


@caught_by("bad-input")
class AxesOutOfRange(Recipe):
    """Axes that do not exist are passed over."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        within = tuple(a for a in s.broadcast_dims if -len(shape) <= a < len(shape))
        return super().shapes(shape, replace(s, broadcast_dims=within))


@caught_by("bad-input")
class FailsWithAnyError(Recipe):
    """Nonsense is noticed, but by an assertion that -O removes."""

    def validate(self, x: Array, s: Settings) -> None:
        assert 0 <= s.rate <= 1
        super().validate(x, s)
