"""Streams that go wrong after a while, or for some seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings


class Called(Port):
    """A layer whose calls are counted."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        s = Settings(**settings)
        return [self.call(x, s, seed, number) for number in range(count)]

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return self.step(x, x, s, np.random.default_rng([seed, number]))[0]


@caught_by("calls-differ")
class FrozenAfterAHundredCalls(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, s, seed, min(number, 100))


@caught_by("calls-differ")
class BackAfter64Calls(Called):
    """The count of calls is kept in six bits."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return super().call(x, s, seed, number % 64)


@caught_by("calls-differ")
class MasksBackAfter200Calls(Called):
    """Masks are kept and used again after 200 calls; sizes are fresh."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        mask = super().call(x, s, seed, number % 200) != 0
        sizes = s.law.ppf(
            s.rate + (1 - s.rate) * np.random.default_rng([seed, number, 1]).random(x.shape)
        )
        return (
            (x * mask * sizes).astype(x.dtype)
            if s.training and 0 < s.rate < 1
            else x * (s.rate < 1)
        )


@caught_by("calls-independent")
class EachCallAUnitLater(Called):
    """Call k + 1 is call k, moved on by one unit."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        self.start = number
        output = self.step(x, x, s, np.random.default_rng(seed))[0]
        self.start = 0
        return output

    start = 0

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        units = int(np.prod(shape))
        return super().cells(s, (units + self.start,), rng)[self.start :].reshape(shape)


@caught_by("calls-independent")
class EveryHundredthCallTheSame(Called):
    """A tenth of the units of a call are those of 100 calls before."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        self.old = number % 100 if number >= 100 else None
        output = super().call(x, s, seed, number)
        self.old = None
        return output

    old: int | None = None

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        if self.old is not None:
            same = np.random.default_rng([self.old, 7]).integers(2**16, size=shape, dtype=np.uint16)
            cells.reshape(-1)[::3] = same.reshape(-1)[::3]
        return cells


@caught_by("calls-law")
class RateDriftsWithCalls(Called):
    """The rate rises a little with each call."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        self.shift = min(number, 400) / 400 * 0.3
        output = super().call(x, s, seed, number)
        self.shift = 0.0
        return output

    shift = 0.0

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        return np.where(rng.random(shape) < self.shift, cells // 2, cells)


@caught_by("seed-plus-call")
class SeedTimes64PlusCall(Called):
    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return self.step(x, x, s, np.random.default_rng(64 * seed + number))[0]


@caught_by("seed-plus-call")
class SeedPlusThousandCalls(Called):
    """Call k of seed s draws from seed s + 1000·k."""

    def call(self, x: Array, s: Settings, seed: int, number: int) -> Array:
        return self.step(x, x, s, np.random.default_rng(seed + 1000 * number))[0]


@caught_by("seeds-apart")
class SeedOf16Bits(Port):
    def source(self, seed: int) -> RNG:
        return super().source(seed % 2**16)


@caught_by("seeds-apart")
class SeedLosesBit20(Port):
    def source(self, seed: int) -> RNG:
        return super().source(seed & ~(1 << 20))


@caught_by("many-seeds")
class SeedModuloAPrime(Port):
    def source(self, seed: int) -> RNG:
        return super().source(seed % 65_521)


@caught_by("neighbouring-seeds")
class SeedTimesThreePlusPosition(Port):
    """Unit i of seed s draws from a stream of all seeds, at 3·s + i."""

    def source(self, seed: int) -> RNG:
        self.seed = seed
        return super().source(seed)

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        block, start = divmod(3 * self.seed, 2**20)
        units = int(np.prod(shape))
        stream = [
            super(SeedTimesThreePlusPosition, self).cells(
                s, (2**20,), np.random.default_rng(block + k)
            )
            for k in range(2 + units // 2**20)
        ]
        return np.concatenate(stream)[start : start + units].reshape(shape)


@caught_by("seeds-independent")
class AFifthFromNowhere(Port):
    """A fifth of the units draw from a generator that no seed reaches."""

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        cells = super().cells(s, shape, rng)
        same = np.random.default_rng(0).integers(2**16, size=shape, dtype=np.uint16)
        cells.reshape(-1)[::5] = same.reshape(-1)[::5]
        return cells


@caught_by("determinism")
class SeedZeroIsNoSeed(Port):
    """``if seed:`` stands where ``if seed is not None:`` was meant."""

    def source(self, seed: int) -> RNG:
        return np.random.default_rng(seed or None)


@caught_by("determinism")
class RemembersTheLastDraw(Port):
    """A second draw of one seed goes on where the first has stopped."""

    def __init__(self) -> None:
        self.sources: dict[int, RNG] = {}

    def source(self, seed: int) -> RNG:
        return self.sources.setdefault(seed, super().source(seed))


@caught_by("layer-determinism")
class CountDecides(Port):
    """How many calls are asked for decides what they draw."""

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        return super().calls(x, count=count, seed=seed + count, **settings)
