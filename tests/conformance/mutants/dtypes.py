"""Implementations that are right in one dtype, or for one number of axes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


class InDtype(Port):
    """What is wrong shows in one dtype."""

    dtype: str

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.here = x.dtype == self.dtype
        return super().step(x, upstream, s, rng)


@caught_by("dtype-law")
class DoubleHasAnotherAlpha(InDtype):
    dtype = "float64"

    def law(self, s: Settings) -> Any:
        return replace(s, alpha=2 * s.alpha).law if self.here else s.law


@caught_by("dtype-law")
class HalfDropsMore(InDtype):
    dtype = "float16"

    def law(self, s: Settings) -> Any:
        return replace(s, rate=1.1 * s.rate if s.rate < 0.9 else s.rate).law if self.here else s.law


@caught_by("dtype-law")
class DoubleSharesBits(InDtype):
    """A float64 takes two words of 32 bits, of which every other one is used twice."""

    dtype = "float64"

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        flat = cells.reshape(-1)
        if self.here:
            flat[1::2] = flat[: flat.size // 2 * 2 : 2]
        return cells


@caught_by("backward-same-draw")
class HalfGradientMaskOnly(InDtype):
    """In float16 the gradient has the mask but not the size."""

    dtype = "float16"

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if not self.here:
            return super().backward(upstream, c, s, shapes, rng)
        return (upstream * (c > 0) / (1 - s.rate)).astype(upstream.dtype)


@caught_by("backward-same-draw")
class FreshMaskBehindDenseLayers(Port):
    """With two axes the backward pass draws anew."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if c.ndim == 2:
            c = self.coefficients(s, *shapes, rng)
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("backward-same-draw")
class FreshMaskWithSharedP(Port):
    """With a shared probability the backward pass draws masks anew."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if shapes[1] is not None:
            c = self.coefficients(s, *shapes, rng)
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("backward-same-draw")
class GradientFromOutput(Port):
    """The coefficient is taken for output over input, which is no number where the input is 0."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, gradient = super().step(x, upstream, s, rng)
        if s.training and np.issubdtype(x.dtype, np.floating):
            with np.errstate(invalid="ignore", divide="ignore"):
                gradient = np.nan_to_num(output / x * upstream).astype(x.dtype)
        return output, gradient


@caught_by("backward-same-draw")
class GradientLosesSmallUpstream(Port):
    """Small gradients are rounded away."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        upstream = np.where(np.abs(upstream) < 0.2, 0, upstream)
        return (upstream * c).astype(c.dtype if upstream.dtype == c.dtype else upstream.dtype)


@caught_by("units-independent")
class FourAxesShareFeatureMaps(Port):
    """With four axes, as in a convolution, whole feature maps are dropped."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        if len(shape) != 4 or s.broadcast_dims or s.p_broadcast_dims:
            return mask_shape, p_shape
        return (*mask_shape[:2], 1, 1), p_shape


@caught_by("units-independent")
class OneAxisSharesP(Port):
    """With one axis, which has no batch, all units share a probability."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        return mask_shape, (1,) if len(shape) == 1 and p_shape is None else p_shape


@caught_by("drawn-cases")
class FiveAxesInHalfPrecision(InDtype):
    """A combination that nobody thinks of: of five axes, in float16, one is shared."""

    dtype = "float16"

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        if len(shape) == 5 and self.here:
            mask_shape = (*mask_shape[:4], 1)
        return mask_shape, p_shape


@caught_by("dtype-law")
class DoubleRoundsItsRateToBytes(InDtype):
    """In float64 the rate is one of 256."""

    dtype = "float64"

    def law(self, s: Settings) -> Any:
        rounded = max(round(256 * s.rate), 1) / 256
        return replace(s, rate=rounded).law if self.here and rounded < 1 else s.law
