"""A right implementation in steps small enough for each to go wrong on its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from quantal._errors import FLOATING, wrong_type
from quantal._granularity import coefficient_shapes
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution

Shape = tuple[int, ...]
RNG = np.random.Generator


class Recipe:
    """The paper's recipe; a mutant overrides the step that it gets wrong."""

    @property
    def name(self) -> str:
        return type(self).__name__

    # --- the interface of the kit ----------------------------------------------------------------

    def apply(self, x: Array, *, seed: int, **settings: Any) -> Array:
        return self.step(x, x, Settings(**settings), self.source(seed))[0]

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        return self.step(x, upstream, Settings(**settings), self.source(seed))

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        rng, s = self.source(seed), Settings(**settings)
        return [self.step(x, x, s, rng)[0] for _ in range(count)]

    # --- the steps -------------------------------------------------------------------------------

    def source(self, seed: int) -> RNG:
        return np.random.default_rng(seed)

    def validate(self, x: Array, s: Settings) -> None:
        Dilution(s.rate, s.alpha, vary=s.vary, unit_mean=s.unit_mean)
        if not np.issubdtype(x.dtype, np.floating):
            raise wrong_type("x", FLOATING, x.dtype)

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.validate(x, s)
        shapes = self.shapes(x.shape, s)
        if not s.training or s.rate == 0:
            return self.resting(x, s), self.resting(upstream, s)
        if s.rate == 1:
            return np.zeros_like(x), np.zeros_like(upstream)
        c = self.coefficients(s, *shapes, rng)
        return self.forward(x, c), self.backward(upstream, c, s, shapes, rng)

    def resting(self, x: Array, s: Settings) -> Array:
        return x

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        return coefficient_shapes(shape, s.broadcast_dims, s.p_broadcast_dims)

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        p = self.p(s, mask_shape if p_shape is None else p_shape, rng)
        c = self.size(p, s) * self.mask(p, s, mask_shape, rng)
        return c / self.gain(s)

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.isinf(s.alpha):
            return np.full(shape, 1 - s.rate)
        return rng.beta(s.alpha, self.beta(s), shape)

    def beta(self, s: Settings) -> float:
        return s.alpha * s.rate / (1 - s.rate)

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        return rng.random(shape, np.float32) < (1 - s.rate if s.vary == "q" else p)

    def size(self, p: Array, s: Settings) -> Array:
        return np.full_like(p, 1 / (1 - s.rate)) if s.vary == "p" else p / (1 - s.rate) ** 2

    def gain(self, s: Settings) -> float:
        return Dilution(s.rate, s.alpha, vary=s.vary).mean if s.unit_mean else 1.0

    def forward(self, x: Array, c: Array) -> Array:
        return (x * c).astype(x.dtype)

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return (upstream * c).astype(upstream.dtype)
