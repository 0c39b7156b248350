"""Faults that show in one corner only: at one α, in one shape, one dtype, one layout, one order."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import replace
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.dependence import Copies, Flat
from mutants.dtypes import InDtype
from mutants.laws import Replaced
from mutants.places import KEPT
from mutants.register import caught_by
from mutants.series import Called
from mutants.structure import SharedP
from quantal.conformance._adapter import Array, Settings

# --- values that come too often ------------------------------------------------------------------


class CoarseTable(Port):
    """The last bits are not used, so that a table has 2¹² cells."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        return cells & 0xFFF0 if self.coarse(s) else cells

    def coarse(self, s: Settings) -> bool:
        raise NotImplementedError


@caught_by("resolution")
class CoarseTableAtAlpha30(CoarseTable):
    def coarse(self, s: Settings) -> bool:
        return s.alpha == 30


@caught_by("resolution")
class CoarseTableAtHighRates(CoarseTable):
    def coarse(self, s: Settings) -> bool:
        return s.rate > 0.7


@caught_by("resolution")
class CoarseTableInDouble(CoarseTable, InDtype):
    dtype = "float64"

    def coarse(self, s: Settings) -> bool:
        return self.here


@caught_by("copies-in-a-call")
class CallsReadTheSameBackwards(Flat):
    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        half = cells.size // 2
        cells[cells.size - half :] = cells[:half][::-1]
        return cells


@caught_by("copies-in-a-call")
class RowsReadTheSameBackwards(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        half = shape[-1] // 2 if shape else 0
        if half:
            cells[..., -half:] = cells[..., :half][..., ::-1]
        return cells


@caught_by("copies-in-a-call")
class SquareMapsAreSymmetric(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if len(shape) > 1 and shape[-1] == shape[-2]:
            cells = np.triu(cells) + np.swapaxes(np.triu(cells, 1), -1, -2)
        return cells


@caught_by("copies-in-a-call")
class HalfACallShuffled(Flat):
    """The second half of a call is the first, in another order."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        half = cells.size // 2
        cells[half : 2 * half] = rng.permutation(cells[:half])
        return cells


@caught_by("copies-between-calls")
class LayerShufflesItsFirstCall(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        self.order = number
        output = self.step(x, x, s, np.random.default_rng(seed))[0]
        self.order = 0
        return output

    order = 0

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng).reshape(-1)
        if self.order:
            cells = np.random.default_rng([1, self.order]).permutation(cells)
        return cells.reshape(shape)


@caught_by("copies-between-calls")
class SeedsShuffleOneStock(Flat):
    """Every seed puts the same values into another order."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        stock = np.random.default_rng(cells.size).integers(2**16, size=cells.size, dtype=np.uint16)
        return rng.permutation(stock)


# --- units that depend on each other -------------------------------------------------------------


@caught_by("units-independent")
class CopiesThirtySevenApart(Copies):
    distance, share = 37, 0.05


@caught_by("units-independent")
class CopiesInDropout(Copies):
    """Only where kept units are alike, every tenth mask is that of a unit 101 before."""

    distance, share = 101, 0.2

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        return super().spoil(cells, s, rng) if math.isinf(s.alpha) else cells


@caught_by("units-independent")
class CopiesWithUnitMean(Copies):
    distance = 5

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        return super().spoil(cells, s, rng) if s.unit_mean else cells


@caught_by("units-independent")
class CopiesAtHighRates(Copies):
    distance = 1

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        return super().spoil(cells, s, rng) if s.rate > 0.85 else cells


@caught_by("units-independent")
class HalvesOfABatchAreOpposites(Port):
    """The second half of a batch has 1 − u where the first has u."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if shape and (half := shape[0] // 2):
            cells[half : 2 * half] = ~cells[:half]
        return cells


@caught_by("units-independent")
class MiddlingTogetherAtAlphaTen(Flat):
    """At α = 10 a unit is middling where its neighbour is, or an opposite of that."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if s.alpha == 10:
            pairs = cells[: cells.size // 2 * 2].reshape(-1, 2)
            turned = rng.random(len(pairs)) < 0.5
            pairs[:, 1] = np.where(turned, ~pairs[:, 0], pairs[:, 0])
        return cells


@caught_by("triples-independent")
class ThirdIsParityThirtySevenApart(Flat):
    """Of three units 37 apart the third is the exclusive or of the others."""

    gap = 37

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        blocks = cells[: cells.size // (3 * self.gap) * 3 * self.gap].reshape(-1, 3, self.gap)
        blocks[:, 2] = blocks[:, 0] ^ blocks[:, 1]
        return cells


@caught_by("triples-independent")
class ThirdIsParityFarApart(ThirdIsParityThirtySevenApart):
    gap = 777


# --- places and sizes ----------------------------------------------------------------------------


@caught_by("call-sizes")
class LastOfOddCallsDropped(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if math.prod(shape) % 2:
            cells.reshape(-1)[-1] = 0
        return cells


@caught_by("call-sizes")
class ScalarsAreDropout(Port):
    """An array of no axes is dropped as often as any, but has the size of dropout."""

    def forward(self, x: Array, c: Array) -> Array:
        return super().forward(x, c if x.ndim else np.where(c > 0, 1.0, 0.0))


@caught_by("drop-by-index")
class LastOfLongRowsKept(Port):
    """Rows of more than 256 are drawn without their last unit."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if len(shape) == 2 and 256 < shape[-1] < 1000:
            cells[..., -1] = KEPT
        return cells


@caught_by("drop-by-index")
class FirstSampleKept(Port):
    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if len(shape) > 1 and shape[0] > 200:
            cells[0] = KEPT
        return cells


@caught_by("no-repeats")
class RepeatsAfterAMillion(Port):
    """A period of a million units: not a power of two, nor of whole rows."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        units = math.prod(shape)
        once = super().cells(s, (min(units, 1_000_003),), rng)
        return np.resize(once, units).reshape(shape)


@caught_by("drawn-laws")
class FiveAxesHaveAnotherAlpha(Port):
    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if len(mask_shape) == 5 and math.isfinite(s.alpha):
            s = replace(s, alpha=2 * s.alpha)
        return super().coefficients(s, mask_shape, p_shape, rng)


@caught_by("tiny-rate")
class OneInTenThousandDoubled(Replaced):
    """Rates below 2⁻¹² are rounded up to it."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=max(s.rate, 2.0**-12) if s.rate > 0 else s.rate)


@caught_by("broadcast-law")
class PairsOfAxesDropLess(Replaced):
    """With two shared axes the rate is taken for that of each."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=s.rate**2 if len(s.broadcast_dims) == 2 else s.rate)


# --- gradients, dtypes and layouts ---------------------------------------------------------------

HALF = ("float16", "float32", "bfloat16") if importlib.util.find_spec("ml_dtypes") else ("float16",)


@caught_by("backward-same-draw")
class BrainFloatGradientMaskOnly(InDtype):
    """In bfloat16, or float16 where there is no other, the gradient forgets the size."""

    dtypes = HALF
    dtype = HALF[-1]

    def validate(self, x: Array, s: Settings) -> None:
        if x.dtype != self.dtype:  # which NumPy does not take for a floating-point number
            super().validate(x, s)

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        c = np.where(c > 0, 1 / (1 - s.rate), 0) if self.here else c
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("backward-same-draw")
class FreshMaskInLargeBackward(Port):
    """More than 2¹⁷ units are drawn anew in the backward pass."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if upstream.size > 2**17:
            c = self.coefficients(s, *shapes, rng)
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("backward-same-draw")
class TinyGradientsLost(Port):
    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        lost = np.abs(upstream.astype(np.float32)) < 2.0**-10
        return super().backward(np.where(lost, upstream * 0, upstream), c, s, shapes, rng)


@caught_by("backward-same-draw")
class GradientWithoutUnitMean(Port):
    """With unit_mean the gradient is that of QSD without it."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return super().backward(upstream, c * self.gain(s), s, shapes, rng)


@caught_by("dtype-law")
class HalfSharesAnotherProbability(InDtype):
    """In float16 the mask of a shared p goes by another α."""

    dtype = "float16"

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None and self.here and math.isfinite(s.alpha):
            s = replace(s, alpha=4 * s.alpha)
        return super().coefficients(s, mask_shape, p_shape, rng)


@caught_by("memory-order")
class FortranGradientDrawnAnew(Port):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, gradient = super().step(x, upstream, s, rng)
        if x.ndim > 1 and x.flags.f_contiguous and not x.flags.c_contiguous:
            gradient = super().step(upstream, upstream, s, rng)[0]
        return output, gradient


@caught_by("memory-order")
class NegativeStridesTurned(Port):
    """Where strides are negative, coefficients lie the other way round."""

    def forward(self, x: Array, c: Array) -> Array:
        if any(stride < 0 for stride in x.strides):
            c = np.broadcast_to(c, x.shape)[(slice(None, None, -1),) * x.ndim]
        return super().forward(x, c)


# --- streams -------------------------------------------------------------------------------------


@caught_by("calls-differ")
class FrozenAfter700Calls(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, s, seed, min(number, 700))


@caught_by("calls-differ")
class DropoutBackAfter200Calls(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, s, seed, number % 200 if math.isinf(s.alpha) else number)


@caught_by("calls-differ")
class SharedMasksFrozen(Called):
    """With shared axes the stream stands still after 100 calls."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        shared = s.broadcast_dims or s.p_broadcast_dims
        return super().call(x, s, seed, min(number, 100) if shared else number)


@caught_by("many-seeds")
class HalvesOfASeedInAnyOrder(Port):
    """A seed is split into two words, and what is made of them does not know which was which."""

    def source(self, seed: int) -> RNG:
        return np.random.default_rng(sorted(divmod(seed, 2**16)))


@caught_by("many-seeds")
class SmallSeedsAreOne(Port):
    def source(self, seed: int) -> RNG:
        return super().source(max(seed, 16))


@caught_by("many-seeds")
class SeedBackwards(Port):
    """A seed and the one with its bits reversed are the same."""

    def source(self, seed: int) -> RNG:
        return super().source(max(seed, int(f"{seed:031b}"[::-1], 2)))


# --- shared probabilities ------------------------------------------------------------------------


@caught_by("tiny-rate")
class DropoutByBytes(Port):
    """At α = inf eight bits decide."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        return cells | 0xFF if math.isinf(s.alpha) else cells


@caught_by("p-granularity-masks")
class SharedDropoutSharesMasks(Port):
    """At α = inf, units that share a probability share their mask."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        return (p_shape or mask_shape, None) if math.isinf(s.alpha) else (mask_shape, p_shape)


@caught_by("p-granularity-masks")
class SharedSizeOnlyAtLargeAlpha(Port):
    """From α = 10 on, masks of a shared p go by p̄."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None and s.vary == "pq" and 10 <= s.alpha < math.inf:
            s = replace(s, vary="q")
        return super().coefficients(s, mask_shape, p_shape, rng)


# --- at the ends of what is possible -------------------------------------------------------------


@caught_by("extreme-alpha")
class TinyAlphaIsAllOrNothing(Port):
    """Below α = 0.01, p is taken for 0 or 1."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if s.alpha >= 0.01 or s.vary != "pq":
            return super().coefficients(s, mask_shape, p_shape, rng)
        return (rng.random(mask_shape) < 1 - s.rate) / (1 - s.rate) ** 2 / self.gain(s)


@caught_by("extreme-alpha")
class AlphaAtLeastAHundredth(Replaced):
    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=max(s.alpha, 0.01))


@caught_by("p-granularity-law")
class SharedAlphaWithinBounds(SharedP):
    """Where p is shared, α is kept between 0.1 and 20."""

    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return replace(s, alpha=min(max(s.alpha, 0.1), 20.0)) if math.isfinite(s.alpha) else s


@caught_by("backward-same-draw")
class HalfGradientOverflows(InDtype):
    """A large gradient is divided by p̄² before it is multiplied by p."""

    dtype = "float16"

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        if not self.here:
            return super().backward(upstream, c, s, shapes, rng)
        scale = np.float16((1 - s.rate) ** -2)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((upstream * scale) * (c / scale).astype(np.float16), np.float16)


@caught_by("linearity")
class LargeInputsOverflow(InDtype):
    """The same in the forward pass."""

    dtype = "float16"

    def forward(self, x: Array, c: Array) -> Array:
        if not self.here:
            return super().forward(x, c)
        top = np.float16(np.max(c, initial=1))
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((x * top) * (c / top).astype(np.float16), np.float16)


# --- shapes that nobody tried --------------------------------------------------------------------


@caught_by("memory-order")
class SquareGradientTransposed(Port):
    """In a square, an upstream gradient in another order meets the coefficients in that order."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        square = upstream.ndim == 2 and upstream.shape[0] == upstream.shape[1]
        if square and c.shape == upstream.shape and not upstream.flags.c_contiguous:
            c = c.T
        return super().backward(upstream, c, s, shapes, rng)


@caught_by("call-sizes")
class BatchOfOneSharesTime(Port):
    """A batch of one sample is taken for no batch, and its first axis for one that is shared."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        if len(shape) == 3 and shape[0] == 1 and p_shape is None and not s.broadcast_dims:
            mask_shape = (1, 1, shape[2])
        return mask_shape, p_shape


@caught_by("broadcast-dims")
class AxesOfOneAreNotCounted(Port):
    """Axes of length 1 are squeezed away before those that are shared are looked up."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        mask_shape, p_shape = super().shapes(shape, s)
        there = [axis for axis, size in enumerate(shape) if size != 1]
        if len(there) == len(shape) or not s.broadcast_dims:
            return mask_shape, p_shape
        shared = {there[a % len(shape)] for a in s.broadcast_dims if a % len(shape) < len(there)}
        return tuple(1 if axis in shared else n for axis, n in enumerate(shape)), p_shape
