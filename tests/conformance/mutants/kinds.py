"""Faults of one kind of call: a law, a dtype, shared axes, large calls or a layer's own."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.dependence import Flat
from mutants.dtypes import InDtype
from mutants.laws import Replaced
from mutants.places import KEPT
from mutants.register import caught_by
from mutants.series import Called
from mutants.structure import OwnMasks, SharedP
from quantal.conformance._adapter import Array, Settings

# --- laws ----------------------------------------------------------------------------------------


@caught_by("extreme-alpha")
class VaryQAlphaAtLeastATenth(Replaced):
    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=max(s.alpha, 0.1)) if s.vary == "q" else s


@caught_by("extreme-alpha")
class UnitMeanForgottenAtTheEnds(Replaced):
    """Where α is tiny or large, no mean is divided by."""

    def instead(self, s: Settings) -> Settings:
        beyond = s.alpha < 0.1 or 320 < s.alpha < math.inf
        return replace(s, unit_mean=s.unit_mean and not beyond)


@caught_by("kept-values")
class SizesALittleLowAtHighRates(Port):
    """1/p̄² in few digits."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return c * 0.998 if s.rate > 0.55 and s.vary == "pq" and s.alpha < math.inf else c


class InLargeCalls(InDtype):
    """More than 2¹⁹ units are drawn by another law."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.large = x.size > 2**19
        return super().step(x, upstream, s, rng)

    dtype = "float16"


@caught_by("large-call")
class LargeDropoutDropsMore(InLargeCalls, Replaced):
    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=1.15 * s.rate) if self.large and math.isinf(s.alpha) else s


@caught_by("large-call")
class LargeHalfHasAnotherAlpha(InLargeCalls, Replaced):
    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=3 * s.alpha) if self.large and self.here else s


@caught_by("large-call")
class LargeDropoutReadsTheSameBackwards(Flat):
    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        half = cells.size // 2
        if half > 2**18 and math.isinf(s.alpha):
            cells[half : 2 * half] = cells[:half][::-1]
        return cells


@caught_by("dtype-law")
class HalfIsDropoutAtSmallAlpha(InDtype, Replaced):
    dtype = "float16"

    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=math.inf) if self.here and s.alpha < 0.1 else s


@caught_by("dtype-law")
class DoubleDropsNoMoreThan955(InDtype, Replaced):
    dtype = "float64"

    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=min(s.rate, 0.955)) if self.here else s


@caught_by("dtype-law")
class DoubleSharesSizesOnly(InDtype, SharedP):
    """In float64 the masks of a shared probability go by p̄, and their sizes by the law of one."""

    dtype = "float64"

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None or not self.here or s.vary != "pq":
            return super().coefficients(s, mask_shape, p_shape, rng)
        sizes = rng.beta(s.alpha + 1, s.alpha * s.rate / (1 - s.rate), p_shape) / (1 - s.rate) ** 2
        return sizes * (rng.random(mask_shape) < 1 - s.rate)

    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return s


@caught_by("tiny-rate")
class SharedCoefficientsByBytes(Port):
    """Where coefficients are shared, eight bits decide."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        return cells | 0xFF if s.broadcast_dims else cells


@caught_by("half-precision")
class HalfMasksOfElevenBits(InDtype, OwnMasks):
    """In float16 a shared probability is compared with numbers of eleven bits."""

    dtype = "float16"

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        u = rng.random(shape)
        return np.floor(u * 2**11) / 2**11 if self.here else u


# --- shared axes ---------------------------------------------------------------------------------


@caught_by("p-granularity-law")
class AxisOfOneSharesNoProbability(Port):
    """In a batch of one, masks go by p̄."""

    def shapes(self, shape: Shape, s: Settings) -> tuple[Shape, Shape | None]:
        self.alone = bool(s.p_broadcast_dims) and all(shape[a] == 1 for a in s.p_broadcast_dims)
        return super().shapes(shape, s)

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        s = replace(s, vary="q") if self.alone and s.vary == "pq" else s
        return super().coefficients(s, mask_shape, p_shape, rng)


@caught_by("p-granularity-masks")
class SharedAlphaAtLeastAFiftieth(SharedP):
    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return replace(s, alpha=max(s.alpha, 0.02))


@caught_by("p-granularity-masks")
class SharedVaryPAlphaAtLeastAHalf(SharedP):
    def instead(self, s: Settings, p_shape: Shape) -> Settings:
        return replace(s, alpha=max(s.alpha, 0.5)) if s.vary == "p" else s


@caught_by("p-granularity-masks")
class AsManyOfEachGroup(OwnMasks):
    """Of a large group with the probability p, a share of p is kept, chosen at random."""

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        u = rng.random(shape)
        axes = [axis for axis in s.p_broadcast_dims if shape[axis] > 40]
        if len(axes) != 1:
            return u
        ranks = np.argsort(np.argsort(u, axis=axes[0]), axis=axes[0])
        once = [1 if axis in axes else size for axis, size in enumerate(shape)]
        return (ranks + rng.random(once)) / shape[axes[0]]


@caught_by("p-granularity-masks")
class NextUnitOfTheNextGroup(OwnMasks):
    """In QSD proper, unit 0 of a group and unit 1 of the next share the number that decides."""

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        u = rng.random(shape)
        if len(shape) == 2 and s.vary == "pq" and s.alpha < math.inf:
            u[1:2, 1:] = u[:1, :-1]
        return u


@caught_by("counts-vary")
class AsManyChannelsEachTime(Port):
    """Of shared coefficients as many are 0 each time."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if not s.broadcast_dims or cells.size < 40:
            return cells
        strata = (rng.permutation(cells.size) + rng.random(cells.size)) / cells.size
        return (strata * 2**16).astype(np.uint16).reshape(shape)


@caught_by("counts-vary")
class SharedProbabilitiesStratified(OwnMasks):
    """Probabilities are spread evenly over their law."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        p = super().p(s, shape, rng)
        count = p.size
        if count < 20 or math.isinf(s.alpha):
            return p
        many = np.sort(rng.beta(s.alpha, self.beta(s), (count, 64)).reshape(-1))
        chosen = many[np.arange(count) * 64 + rng.integers(64, size=count)]
        return rng.permutation(chosen).reshape(shape)

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        return rng.random(shape)


@caught_by("counts-vary")
class EachUnitInAsManyCalls(Called):
    """In a series each unit is dropped in the same number of 260 calls."""

    place: tuple[int, int, int] | None = None

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        self.place = (seed, *divmod(number, 260)) if 100 < x.size < 1000 else None
        output = super().call(x, s, seed, number)
        self.place = None
        return output

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if self.place is None:
            return super().cells(s, shape, rng)
        *block, number = self.place
        turns = np.tile(np.arange(260), (*shape, 1))
        turn = np.random.default_rng(block).permuted(turns, axis=-1)[..., number]
        return ((turn + rng.random(shape)) / 260 * 2**16).astype(np.uint16)


# --- ends ----------------------------------------------------------------------------------------


class Tail(Flat):
    """Units are drawn eight at a time; what is left over is spoilt, in some calls."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if cells.size > 16 and (rest := cells.size % 8) and self.spoils(s):
            cells[-rest:] = self.instead(cells, rest)
        return cells

    def spoils(self, s: Settings) -> bool:
        raise NotImplementedError

    def instead(self, cells: Array, rest: int) -> Any:
        return KEPT


@caught_by("ends-by-kind")
class TailKeptWithUnitMean(Tail):
    def spoils(self, s: Settings) -> bool:
        return s.unit_mean


@caught_by("ends-by-kind")
class TailKeptInHalf(InDtype, Tail):
    dtype = "float16"

    def spoils(self, s: Settings) -> bool:
        return self.here


@caught_by("ends-by-kind")
class TailCopiedInHalf(TailKeptInHalf):
    def instead(self, cells: Array, rest: int) -> Any:
        return cells[:rest]


@caught_by("ends-by-kind")
class LastNumbersOfSharedMasksAreSmall(OwnMasks):
    """With a shared probability the last few units are kept."""

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        u = rng.random(shape)
        if u.size > 16 and (rest := u.size % 4):
            u.reshape(-1)[-rest:] = 0
        return u


@caught_by("ends-by-kind")
class LayerInDoubleDropsItsTail(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        output = super().call(x, s, seed, number)
        spoils = x.dtype == np.float64 and s.training and not s.broadcast_dims + s.p_broadcast_dims
        if spoils and x.size > 16 and (rest := x.size % 8):
            output = output.copy()
            output.reshape(-1)[-rest:] = 0
        return output


@caught_by("call-sizes")
class SecondMaskIsTheFirst(Flat):
    """In calls of a thousand units or more the second one is dropped whenever the first is."""

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        below = round(s.rate * 2**16)
        if cells.size >= 1000 and 0 < below < 2**16:
            ends = (0, below) if cells[0] < below else (below, 2**16)
            cells[1] = rng.integers(*ends)
        return cells


# --- dependence ----------------------------------------------------------------------------------


@caught_by("streams-by-kind")
class HalfDropoutNeighboursShare(InDtype, Flat):
    dtype = "float16"

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if self.here and math.isinf(s.alpha):
            cells[1::2] = cells[: cells.size // 2 * 2 : 2]
        return cells


@caught_by("streams-by-kind")
class DoubleUnitMeanNeighboursShare(InDtype, Flat):
    dtype = "float64"

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if self.here and s.unit_mean:
            cells[1::2] = cells[: cells.size // 2 * 2 : 2]
        return cells


@caught_by("streams-by-kind")
class HalfDropsEveryThirteenthMore(InDtype, Flat):
    dtype = "float16"

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if self.here:
            cells[::13] *= rng.random(cells[::13].size) < 0.5
        return cells


class TwoSeedsInAPair(Port):
    """Seeds 2·k and 2·k + 1 have half of their bits in common, in some calls."""

    def source(self, seed: int) -> RNG:
        self.pair = seed // 2
        return super().source(seed)

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if not self.paired(s):
            return cells
        common = np.random.default_rng([self.pair, 1])
        shared = common.integers(2**16, size=shape, dtype=np.uint16)
        return np.where(common.random(shape) < 0.5, shared, cells)

    def paired(self, s: Settings) -> bool:
        raise NotImplementedError


@caught_by("streams-by-kind")
class TwoSeedsInAPairOfHalf(InDtype, TwoSeedsInAPair):
    dtype = "float16"

    def paired(self, s: Settings) -> bool:
        return self.here


@caught_by("streams-by-kind")
class TwoSeedsInAPairWithSharedAxes(TwoSeedsInAPair):
    def paired(self, s: Settings) -> bool:
        return bool(s.broadcast_dims)


@caught_by("streams-by-kind")
class SharedMasksByTheSameNumbers(OwnMasks):
    """What decides on masks of a shared p is drawn once for each seed; p is fresh."""

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)

    def uniform(self, shape: Shape, rng: RNG, s: Settings) -> Array:
        fixed = s.vary == "pq" and math.isfinite(s.alpha)
        return (np.random.default_rng([self.seed, 1]) if fixed else rng).random(shape)


@caught_by("triples-independent")
class ThirdIsParityInDouble(InDtype, Flat):
    dtype = "float64"

    def spoil(self, cells: Array, s: Settings, rng: RNG) -> Array:
        if self.spoils(s):
            threes = cells[: cells.size // 3 * 3].reshape(-1, 3)
            threes[:, 2] = threes[:, 0] ^ threes[:, 1]
        return cells

    def spoils(self, s: Settings) -> bool:
        return self.here


@caught_by("triples-independent")
class ThirdIsParityWithVaryP(ThirdIsParityInDouble):
    def spoils(self, s: Settings) -> bool:
        return s.vary == "p"


# --- seeds and calls -----------------------------------------------------------------------------


@caught_by("calls-independent")
class ThirdCallIsParity(Called):
    """Every third call is the exclusive or of the two before it."""

    two: list[Array] | None = None

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        self.two = []
        outputs = super().calls(x, count=count, seed=seed, **settings)
        self.two = None
        return outputs

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if self.two is None:
            return cells
        if len(self.two) < 2:
            self.two.append(cells)
            return cells
        (one, other), self.two = self.two, []
        return one ^ other


@caught_by("calls-law")
class LayerSharesMasks(Called):
    """A layer that shares probabilities shares masks too."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        whole = {axis % x.ndim for axis in (*s.broadcast_dims, *s.p_broadcast_dims)}
        s = replace(s, broadcast_dims=tuple(whole), p_broadcast_dims=())
        return super().call(x, s, seed, number)


@caught_by("seed-bits")
class SeedZeroIsDead(Port):
    """A shift register of zeros stays one."""

    def source(self, seed: int) -> RNG:
        self.dead = seed == 0
        return super().source(seed)

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        return cells * np.uint16(not self.dead)


@caught_by("seed-bits")
class LinearInItsSeed(Port):
    """A shift register: exclusive ors of seeds are those of their streams."""

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, np.random.default_rng(31))
        for bit in range(31):
            if self.seed >> bit & 1:
                cells = cells ^ super().cells(s, shape, np.random.default_rng(bit))
        return cells


@caught_by("no-repeats")
class RowsOfTwoSeeds(Port):
    """Row r of seed s is drawn from seed 2048·s + r."""

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if len(shape) != 2 or not 2048 < shape[0] < 10**5:
            return super().cells(s, shape, rng)
        sources = (np.random.default_rng(2048 * self.seed + row) for row in range(shape[0]))
        return np.stack([super(RowsOfTwoSeeds, self).cells(s, shape[1:], one) for one in sources])


@caught_by("no-repeats")
class SeedsFourMillionUnitsApart(Port):
    """All seeds read one stream, each from a place of its own on."""

    def source(self, seed: int) -> RNG:
        bits = np.random.PCG64(1)
        bits.advance(seed * 2**20)  # in steps of 64 bits, four units each
        return np.random.Generator(bits)


@caught_by("settings-matter")
class MasksRememberedBySeed(Port):
    """A mask is kept for its seed and shape, and forgets what rate it was drawn at."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, Shape], Array] = {}

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)

    def forward(self, x: Array, c: Array) -> Array:
        return super().forward(x, c * self.kept.setdefault((self.seed, c.shape), c != 0))


@caught_by("settings-matter")
class RemembersFourDigits(Replaced):
    """A cache of tables whose keys are rounded."""

    def __init__(self) -> None:
        self.kept: dict[Any, Settings] = {}

    def instead(self, s: Settings) -> Settings:
        key = (float(f"{s.rate:.4g}"), float(f"{s.alpha:.4g}"), s.vary, s.unit_mean)
        first = self.kept.setdefault(key, s)
        return replace(s, rate=first.rate, alpha=first.alpha)


# --- inputs and gradients ------------------------------------------------------------------------


def rounded(x: Array, digits: int) -> Array:
    """Return numbers of so many binary digits, with the range that they had."""
    with np.errstate(invalid="ignore"):
        parts, exponents = np.frexp(x)
        return np.ldexp(np.round(parts * 2**digits) / 2**digits, exponents).astype(x.dtype)


@caught_by("linearity")
class InputsOfEightDigits(Port):
    """A float32 is multiplied as a bfloat16, which has its range."""

    def forward(self, x: Array, c: Array) -> Array:
        return super().forward(rounded(x, 8) if x.dtype == np.float32 else x, c)


@caught_by("linearity")
class DoubleThroughSingleWhereItFits(Port):
    def forward(self, x: Array, c: Array) -> Array:
        size = np.abs(x[x != 0])
        if x.dtype == np.float64 and np.all((size > 1e-38) & (size < 1e38)):
            return super().forward(x.astype(np.float32), c).astype(x.dtype)
        return super().forward(x, c)


@caught_by("linearity")
class SmallInputsLost(Port):
    """What is below 10⁻¹² is taken for 0."""

    def forward(self, x: Array, c: Array) -> Array:
        return super().forward(np.where(np.abs(x) < 1e-12, x * 0, x), c)


@caught_by("backward-same-draw")
class GradientsOfElevenDigits(Port):
    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        few = rounded(upstream, 11) if upstream.dtype == np.float32 else upstream
        return super().backward(few, c, s, shapes, rng)


class BackwardAtSomeLaws(Port):
    """Half of the gradient is lost, at some laws."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return super().backward(upstream, c / 2 if self.spoils(s) else c, s, shapes, rng)

    def spoils(self, s: Settings) -> bool:
        raise NotImplementedError


@caught_by("backward-same-draw")
class GradientHalvedAtSmallAlpha(BackwardAtSomeLaws):
    def spoils(self, s: Settings) -> bool:
        return s.alpha < 0.1


@caught_by("backward-same-draw")
class GradientHalvedAtLargeAlpha(BackwardAtSomeLaws):
    def spoils(self, s: Settings) -> bool:
        return 400 < s.alpha < math.inf


@caught_by("backward-same-draw")
class GradientHalvedAtTheLastRates(BackwardAtSomeLaws):
    def spoils(self, s: Settings) -> bool:
        return s.rate < 0.02 or s.rate > 0.96


@caught_by("non-finite-inputs")
class GradientLostWhereTheInputIsInfinite(Port):
    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        output, gradient = super().step(x, upstream, s, rng)
        return output, np.where(np.isfinite(x), gradient, np.zeros_like(upstream))


@caught_by("input-unchanged")
class GradientsInOneBuffer(Port):
    """Gradients of one shape and dtype are all written to the same memory."""

    def __init__(self) -> None:
        self.buffers: dict[Any, Array] = {}

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        gradient = np.asarray(super().backward(upstream, c, s, shapes, rng))
        buffer = self.buffers.setdefault((gradient.shape, gradient.dtype), gradient)
        buffer[...] = gradient
        return buffer


@caught_by("memory-order")
class StridedUpstreamInPlace(Port):
    """Where the upstream gradient has gaps, it is overwritten with what goes on."""

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        output, gradient = super().grad(x, upstream, seed=seed, **settings)
        flags = upstream.flags
        if flags.writeable and not flags.c_contiguous and not flags.f_contiguous:
            upstream[...] = gradient
        return output, gradient.copy()


@caught_by("layer-determinism")
class LayerReturnsCoefficients(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(np.ones_like(x) if s.training else x, s, seed, number)


@caught_by("layer-determinism")
class LayerOfOneAxisFrozen(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, s, seed, 0 if x.ndim == 1 else number)
