"""Paths that nobody walks twice: a layer's calls, test time, one dtype's range, one setting's seeds."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Recipe, Shape

from mutants.dtypes import InDtype
from mutants.laws import Replaced
from mutants.register import caught_by
from mutants.series import Called
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution

# --- what a layer's calls are made with ----------------------------------------------------------


@caught_by("eval-identity")
class LayerDropsFromItsSecondCallOn(Called):
    """Out of training, a layer's first call is the only one that knows it."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, replace(s, training=s.training or number > 0), seed, number)


@caught_by("calls-law")
class LayerIgnoresSharing(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        unshared = replace(s, broadcast_dims=(), p_broadcast_dims=())
        return super().call(x, unshared, seed, number)


@caught_by("calls-law")
class LayerIgnoresUnitMean(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, replace(s, unit_mean=False), seed, number)


@caught_by("calls-law")
class LayerDropsMoreInHalf(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        if x.dtype == np.float16 and 0 < s.rate < 0.8:
            s = replace(s, rate=1.2 * s.rate)
        return super().call(x, s, seed, number)


@caught_by("calls-law")
class DropoutKeepsTheFirstRowOfItsFirstCall(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        output = super().call(x, s, seed, number)
        if math.isinf(s.alpha) and x.ndim > 1 and s.training:
            output = output.copy()
            output[0] = super().call(x, s, seed, 0)[0]
        return output


# --- limits --------------------------------------------------------------------------------------


@caught_by("eval-identity")
class EvalScalesAtLowRates(Recipe):
    def resting(self, x: Array, s: Settings) -> Array:
        scaled = not s.training and 0 < s.rate < 0.15
        return (x * (1 - s.rate)).astype(x.dtype) if scaled else x


@caught_by("eval-identity")
class EvalThroughSingle(Port):
    """Out of training a float64 has the digits of a float32."""

    def resting(self, x: Array, s: Settings) -> Array:
        return x.astype(np.float32).astype(x.dtype)


@caught_by("eval-identity")
class EvalLosesNaN(Port):
    def resting(self, x: Array, s: Settings) -> Array:
        return np.asarray(np.nan_to_num(x))


@caught_by("rate-one-zeros")
class RateOneInPlace(Port):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, gradient = super().step(x, upstream, s, rng)
        if s.training and s.rate == 1 and x.flags.writeable:
            x[...] = 0
        return output, gradient


@caught_by("drop-probability")
class RateClippedAt999(Replaced):
    """No more than 999 units in a thousand are dropped."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=min(s.rate, 0.999))


@caught_by("dropout-limit")
class DropoutScaleClipped(Port):
    """Dropout multiplies by no more than 25."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return np.minimum(c, 25) if math.isinf(s.alpha) else c


@caught_by("unit-mean")
class UnitMeanOfVaryQAtLargeAlpha(Port):
    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        wrong = s.unit_mean and s.vary == "q" and 8 < s.alpha < math.inf
        return c / Dilution(s.rate, s.alpha).mean if wrong else c


# --- what goes in, forwards and backwards --------------------------------------------------------


@caught_by("drawn-cases")
class NegativesKeptAtHighRates(Port):
    """Above a rate of 0.7, only what is positive is dropped."""

    def forward(self, x: Array, c: Array) -> Array:
        if self.high:
            c = np.where(x < 0, 1 / (1 - self.rate), np.broadcast_to(c, x.shape))
        return super().forward(x, c)

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.high, self.rate = s.rate > 0.7, s.rate
        return super().step(x, upstream, s, rng)

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return Port.forward(self, upstream, c)


@caught_by("linearity")
class DoubleThroughSingle(Port):
    """A float64 is multiplied as a float32, which has neither 1e300 nor 1e-300."""

    def forward(self, x: Array, c: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return (x.astype(np.float32) * c.astype(np.float32)).astype(x.dtype)


@caught_by("linearity")
class LargeInputsClipped(Port):
    """What float16 could not hold is cut off in every dtype."""

    def forward(self, x: Array, c: Array) -> Array:
        return super().forward(np.clip(x, -65_504, 65_504), c)


BRAIN = importlib.util.find_spec("ml_dtypes") is not None


@caught_by("linearity")
class BrainFloatThroughHalf(InDtype):
    """A bfloat16, or float32 where there is none, goes through float16 and its narrow range."""

    dtypes = ("float16", "float32", "bfloat16") if BRAIN else ("float16", "float32")
    dtype = dtypes[-1]

    def validate(self, x: Array, s: Settings) -> None:
        if x.dtype != self.dtype:  # which NumPy does not take for a floating-point number
            super().validate(x, s)

    def forward(self, x: Array, c: Array) -> Array:
        if not self.here:
            return super().forward(x, c)
        with np.errstate(over="ignore", invalid="ignore"):
            return (x.astype(np.float16) * c.astype(np.float16)).astype(x.dtype)


@caught_by("backward-same-draw")
class ZeroUpstreamMovesTheOthers(Port):
    """Where a gradient of 0 comes in, those after it get each other's coefficients."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if upstream.ndim and np.any(upstream == 0):
            c = np.roll(np.broadcast_to(c, upstream.shape), 1)
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("memory-order")
class ExpandedUpstreamTakenForOne(Port):
    """The gradient of a sum, one number for all units, gets the coefficient of one."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if upstream.size > 1 and 0 in upstream.strides:
            c = np.broadcast_to(c, upstream.shape).reshape(-1)[0]
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("memory-order")
class UpstreamTakenToLieAsX(Port):
    """Where x is in Fortran order, so is its upstream gradient, or so it is hoped."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if x.ndim > 1 and x.flags.f_contiguous and not x.flags.c_contiguous:
            upstream = upstream.ravel(order="K").reshape(upstream.shape, order="F")
        return super().step(x, upstream, s, rng)


@caught_by("non-finite-inputs")
class HalfLosesInfinity(InDtype):
    dtype = "float16"

    def forward(self, x: Array, c: Array) -> Array:
        return super().forward(np.asarray(np.nan_to_num(x)) if self.here else x, c)


@caught_by("non-finite-inputs")
class GradientLosesInfinity(Port):
    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return super().backward(np.asarray(np.nan_to_num(upstream)), c, s, shapes, rng)


# --- seeds and streams of one setting ------------------------------------------------------------


class SeedBySetting(Port):
    """Some settings have another way from a seed to a stream, which loses bits of it."""

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if self.loses(x, s):
            rng = np.random.default_rng(self.seed % 2**16)
        return super().step(x, upstream, s, rng)

    def loses(self, x: Array, s: Settings) -> bool:
        raise NotImplementedError


@caught_by("many-seeds")
class DropoutSeedOf16Bits(SeedBySetting):
    def loses(self, x: Array, s: Settings) -> bool:
        return math.isinf(s.alpha)


@caught_by("many-seeds")
class SharedSeedOf16Bits(SeedBySetting):
    def loses(self, x: Array, s: Settings) -> bool:
        return bool(s.broadcast_dims or s.p_broadcast_dims)


@caught_by("many-seeds")
class HalfSeedOf16Bits(SeedBySetting):
    def loses(self, x: Array, s: Settings) -> bool:
        return x.dtype == np.float16


class ShortPeriod(InDtype):
    """Streams of one kind come back after 2²⁰ units."""

    dtype = "float64"

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if not self.short(s):
            return super().cells(s, shape, rng)
        units = math.prod(shape)
        return np.resize(super().cells(s, (min(units, 2**20),), rng), units).reshape(shape)

    def short(self, s: Settings) -> bool:
        raise NotImplementedError


@caught_by("no-repeats")
class DoubleRepeats(ShortPeriod):
    def short(self, s: Settings) -> bool:
        return self.here


@caught_by("no-repeats")
class DropoutRepeats(ShortPeriod):
    def short(self, s: Settings) -> bool:
        return math.isinf(s.alpha)


@caught_by("no-repeats")
class SharedCoefficientsRepeat(ShortPeriod):
    def short(self, s: Settings) -> bool:
        return bool(s.broadcast_dims)
