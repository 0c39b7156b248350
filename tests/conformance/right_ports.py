"""Right implementations that differ from each other, and from quantal, in what the guide leaves open."""

from __future__ import annotations

import copy
import functools
import hashlib
import math
from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Recipe, Shape

from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.keys import LEVELS
from quantal.table import shared_table, table

RIGHT: list[type[Recipe]] = []


def right(port: type[Recipe]) -> type[Recipe]:
    RIGHT.append(port)
    return port


@right
class OnlyDouble(Port):
    """A framework that has float64 and nothing else."""

    dtypes = ("float64",)

    def validate(self, x: Array, s: Settings) -> None:
        super().validate(x, s)
        if x.dtype != np.float64:
            raise TypeError(f"x: expected float64. Received: {x.dtype}")


@right
class OnlySingle(Port):
    """A framework that has float32 and nothing else."""

    dtypes = ("float32",)

    def validate(self, x: Array, s: Settings) -> None:
        super().validate(x, s)
        if x.dtype != np.float32:
            raise TypeError(f"x: expected float32. Received: {x.dtype}")


@right
class OnlyHalf(Port):
    """A framework that has float16 and nothing else."""

    dtypes = ("float16",)

    def validate(self, x: Array, s: Settings) -> None:
        super().validate(x, s)
        if x.dtype != np.float16:
            raise TypeError(f"x: expected float16. Received: {x.dtype}")


@right
class Lists(OnlyDouble):
    """Numbers are kept in lists, as Python has them; an adapter makes arrays of them again."""

    def forward(self, x: Array, c: Array) -> Array:
        c = np.broadcast_to(c, x.shape)
        pairs = zip(x.reshape(-1).tolist(), c.reshape(-1).tolist(), strict=True)
        return np.array([one * by for one, by in pairs], x.dtype).reshape(x.shape)


@right
class TwoGammasInLogarithms(Recipe):
    """p = g/(g + h) of two gamma variates that cannot underflow, since only logarithms are kept."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        if math.isinf(s.alpha):
            return super().p(s, shape, rng)
        g, h = (self.log_gamma(a, shape, rng) for a in (s.alpha, self.beta(s)))
        with np.errstate(over="ignore"):
            return np.asarray(1 / (1 + np.exp(h - g)))

    @staticmethod
    def log_gamma(a: float, shape: Shape, rng: RNG) -> Array:
        # A gamma variate of a is one of a + 1 times the a-th root of a uniform one.
        return np.log(rng.standard_gamma(a + 1, shape)) - rng.exponential(size=shape) / a


@right
class SinglePrecisionRecipe(Recipe):
    """The paper's recipe with p, mask and size in float32."""

    def p(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return np.asarray(super().p(s, shape, rng), np.float32)


@functools.lru_cache(maxsize=64)
def quantiles(law: Dilution) -> Array:
    return law.ppf((np.arange(2**18) + 0.5) / 2**18)


@right
class InverseLaw(Port):
    """One uniform number a unit, and the quantile function of the law."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        return quantiles(s.law)[rng.integers(2**18, size=mask_shape)]


@right
class SeedForEachCall(Port):
    """A layer seeds each of its calls anew, from its seed and the number of the call."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        s = Settings(**settings)
        sources = [np.random.default_rng([seed, call]) for call in range(count)]
        return [self.step(x, x, s, rng)[0] for rng in sources]


@right
class NoGradients(Port):
    """A framework for inference: no `grad`, no `calls`."""

    grad = None  # type: ignore[assignment]
    calls = None  # type: ignore[assignment]


@right
class GradientByParts(Recipe):
    """Automatic differentiation: the gradient is rounded in another order than the output."""

    def forward(self, x: Array, c: Array) -> Array:
        return (x * c.astype(np.float32)).astype(x.dtype)

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        third = np.float32(1 / 3)
        return ((upstream * third) * (c.astype(np.float32) * np.float32(3))).astype(upstream.dtype)


@right
class AnyLayout(Port):
    """Outputs lie in memory in Fortran order, or in every second place, and cannot be written to."""

    def forward(self, x: Array, c: Array) -> Array:
        y = np.array(super().forward(x, c), order="F")
        if y.ndim == 1:
            y = np.repeat(y, 2)[::2]
        y.setflags(write=False)
        return y

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return self.forward(upstream, c)


@right
class ZeroForWhatIsDropped(Port):
    """A dropped inf or NaN is 0, as in some frameworks."""

    def forward(self, x: Array, c: Array) -> Array:
        return np.where(c == 0, 0, x * np.where(c == 0, 1, c)).astype(x.dtype)


@right
class AnotherStream(Port):
    """Bits from another generator, eight bits at a time."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        raw = rng.bytes(2 * math.prod(shape))
        return np.frombuffer(raw, np.uint16).reshape(shape)

    def source(self, seed: int) -> RNG:
        return np.random.Generator(np.random.Philox(seed))


@right
class TablesByHand(Recipe):
    """The two tables, read as the guide reads them."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is None:
            drawn = table(s.law)
            row = int(rng.integers(LEVELS) < drawn.threshold)
            return drawn.values[row, rng.integers(2**16, size=mask_shape)]
        shared = shared_table(s.law)
        cell = rng.integers(2**16, size=p_shape)
        keep = rng.integers(LEVELS, size=mask_shape) < shared.keep_below[cell]
        return np.where(keep, shared.values[cell], np.float32(0))


@right
class OnlyBrainFloat(Port):
    """A framework that has bfloat16 and nothing else."""

    dtypes = ("bfloat16",)

    def validate(self, x: Array, s: Settings) -> None:
        Dilution(s.rate, s.alpha, vary=s.vary, unit_mean=s.unit_mean)
        if x.dtype.name != "bfloat16":
            raise TypeError(f"x: expected bfloat16. Received: {x.dtype}")


@right
class OneUniformInSingle(Port):
    """A float32 between 0 and 1 of 24 bits finds its cell."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return np.asarray(rng.random(shape, np.float32) * np.float32(2**16)).astype(np.uint16)


@right
class OneUniformInDouble(InverseLaw):
    """A float64 of 53 bits, and the quantile function between its points."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None or s.alpha < 0.5 or s.vary == "p" or math.isinf(s.alpha):
            return super().coefficients(s, mask_shape, p_shape, rng)
        u = np.asarray(rng.random(mask_shape))
        points, sizes = kept_points(s.law)
        c = np.interp((u - s.rate) / (1 - s.rate), points, sizes)
        return np.where(u < s.rate, 0.0, c)


@functools.lru_cache(maxsize=64)
def kept_points(law: Dilution) -> tuple[Array, Array]:
    """Return shares of kept units, close to each other at both ends, and sizes up to there."""
    ends = np.geomspace(1e-9, 0.01, 2000)
    points = np.concatenate([[0.0], ends, np.linspace(0.01, 0.99, 8001)[1:-1], 1 - ends[::-1], [1]])
    return points, law.ppf(law.rate + (1 - law.rate) * points)


@right
class MersenneTwister(Port):
    """NumPy's generator of old, linear in its bits but with a long period."""

    def source(self, seed: int) -> RNG:
        return np.random.Generator(np.random.MT19937(seed))


@right
class HashedSeeds(Port):
    """A seed goes through SHA-256, and each call of a layer has a hash of its own."""

    def source(self, seed: int) -> RNG:
        digest = hashlib.sha256(str(seed).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest, "big"))

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        s = Settings(**settings)
        keys = [hash((seed, call)) & 2**63 - 1 for call in range(count)]
        return [self.step(x, x, s, self.source(key))[0] for key in keys]


@right
class SpawnedSeeds(Port):
    """A layer spawns a child of its seed for each call."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        s, parent = Settings(**settings), np.random.SeedSequence(seed)
        children = (parent.spawn(1)[0] for _ in range(count))
        return [self.step(x, x, s, np.random.default_rng(child))[0] for child in children]


@right
class DrawnAgainBackwards(Port):
    """Nothing is kept for the backward pass: it draws the same coefficients once more."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        self.before = copy.deepcopy(rng)
        return super().step(x, upstream, s, rng)

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return super().backward(
            upstream, self.coefficients(s, *shapes, self.before), s, shapes, rng
        )


@right
class PackedMasks(Port):
    """Of the forward pass a mask of bits is kept, and the sizes of the kept units."""

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        packed, sizes = np.packbits(c != 0), c[c != 0]
        again = np.zeros(c.shape, c.dtype)
        again[np.unpackbits(packed, count=c.size).astype(bool).reshape(c.shape)] = sizes
        return super().backward(upstream, again, s, shapes, rng)


@right
class DropsBeforeItMultiplies(Port):
    """A mask first, then the sizes of what is left: what was dropped is 0, whatever it was."""

    def forward(self, x: Array, c: Array) -> Array:
        y = np.zeros_like(x)
        c = np.broadcast_to(c, x.shape)
        y[c != 0] = x[c != 0] * c[c != 0]
        return y

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return self.forward(upstream, c)


@right
class ThroughDouble(Recipe):
    """Whatever comes in is computed with in float64, and rounded once at the end."""

    def mask(self, p: Array, s: Settings, shape: Shape, rng: RNG) -> Array:
        return np.asarray(rng.random(shape) < (1 - s.rate if s.vary == "q" else p))

    def forward(self, x: Array, c: Array) -> Array:
        return np.asarray(x.astype(np.float64) * c).astype(x.dtype)


@right
class ColumnsFirst(Port):
    """Units are drawn column by column, whatever their order in memory."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return super().cells(s, shape[::-1], rng).T


@right
class FourUnitsAWord(Port):
    """Words of 64 bits, each for four units; what is left of the last one is not used."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        units = math.prod(shape)
        words = rng.integers(2**64, size=-(-units // 4), dtype=np.uint64)
        return words.view(np.uint16)[:units].reshape(shape)


@right
class SizeBiasedBeta(Recipe):
    """A kept unit draws p from the law that it has given that it is kept, apart from the mask."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None or s.vary != "pq" or math.isinf(s.alpha):
            return super().coefficients(s, mask_shape, p_shape, rng)
        sizes = rng.beta(s.alpha + 1, self.beta(s), mask_shape) / (1 - s.rate) ** 2
        return sizes * (rng.random(mask_shape) < 1 - s.rate) / self.gain(s)


@right
class OnlyArrays(Port):
    """A framework that takes arrays alone: NumPy's scalars are none, not even without axes."""

    def step(self, x: Array, upstream: Array, s: Settings, rng: RNG) -> tuple[Array, Array]:
        if not (isinstance(x, np.ndarray) and isinstance(upstream, np.ndarray)):
            raise AssertionError(f"expected arrays, received {type(x)} and {type(upstream)}")
        return super().step(x, upstream, s, rng)


@right
class FlushesToZero(Port):
    """Numbers below the smallest normal one are 0, as on many devices."""

    def forward(self, x: Array, c: Array) -> Array:
        y = super().forward(x, c)
        if y.dtype == np.float16:  # whose small numbers devices do have
            return y
        return np.where(np.abs(y) < np.finfo(y.dtype).smallest_normal, np.zeros_like(y), y)

    def backward(self, upstream: Array, c: Array, s: Settings, shapes: Any, rng: RNG) -> Array:
        return self.forward(upstream, c)
