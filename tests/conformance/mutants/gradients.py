"""Wrong gradients, outputs, dtypes, and input that should have been refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from recipe import RNG, Recipe, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


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
