"""Units that share what they should not, or do not share what they should."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from recipe import RNG, Recipe, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.table import table


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
