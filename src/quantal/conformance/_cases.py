"""Single calls for the checks that chance plays no part in: their shapes, settings and dtypes.

In a quick run they are few: a framework that compiles does so once for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quantal.conformance._adapter import Array, Settings
from quantal.conformance._laws import EVERY
from quantal.conformance._precision import digits as digits_of
from quantal.conformance._shapes import BATCH
from quantal.conformance._subject import Shape, Subject

__all__ = [
    "DENSE",
    "INF",
    "PAIR",
    "SMALL",
    "Case",
    "all_cases",
    "at_every_law",
    "cases",
    "chance",
    "close_to_one",
    "digits",
    "large",
    "numbers",
    "powers",
    "rng_of",
    "seed_of",
]

INF = math.inf

SMALL = (16, 18, 20)
DENSE = (64, 10)
"""A batch of a dense layer."""

SHAPES: tuple[Shape, ...] = (
    (), (1,), (7,), (300,), DENSE, (128, 784), (1, 300), (300, 1), SMALL, (4, 3, 6, 5),
    (2, 3, 4, 3, 5), (24, 24), (1, 12, 10),
)  # fmt: skip
RARE = 64
"""What has a probability of 2⁻⁶⁴ happens in no run."""

LARGE: tuple[Shape, ...] = ((512, 1000), (4099, 33), (16, 9, 28, 33))
"""Shapes in which only what is drawn is looked at."""

SHAPES_QUICK: tuple[Shape, ...] = ((), (7,), DENSE, (2, 3, 4, 3, 5))

LAWS = (
    Settings(0.5, 1.0),
    Settings(0.3, INF),
    Settings(0.2, 0.2),
    Settings(0.6, 10.0, unit_mean=True),
    Settings(0.35, 1.0, vary="q"),
    Settings(0.4, 2.0, vary="p"),
)
"""A law of each kind."""

# (shape, broadcast_dims, p_broadcast_dims)
SHARED: tuple[tuple[Shape, tuple[int, ...], tuple[int, ...]], ...] = (
    *((SMALL, axes, ()) for axes in ((0,), (1,), (-1,), (0, 1), (0, 2), (1, 2))),
    *((SMALL, (), axes) for axes in ((0,), (1,), (-1,), (0, 1), (0, 2), (1, 2))),
    (SMALL, (2,), (0,)), (SMALL, (0, 1), (2,)), (SMALL, (1,), (0, 2)),
    (DENSE, (0,), ()), (DENSE, (1,), ()), (DENSE, (), (0,)), (DENSE, (), (1,)),
    ((128, 784), (), (0,)), ((300,), (0,), ()), ((300,), (), (0,)),
    ((4, 3, 6, 5), (2, 3), ()), ((4, 3, 6, 5), (0, 2), ()), ((4, 3, 6, 5), (), (0, 2)),
    ((4, 3, 6, 5), (2, 3), (0,)), ((2, 3, 4, 3, 5), (1, 3), ()), ((2, 3, 4, 3, 5), (), (0, 4)),
)  # fmt: skip
MOST_IN_HALF = 1e3
"""The largest coefficient that float16 can multiply the numbers below by."""

PAIR = (0, 2)
"""The axes that a quick run shares."""

SHARED_QUICK = ((SMALL, PAIR, ()), (SMALL, (), PAIR))
SHARED_IN_EACH_DTYPE = (SHARED[1], SHARED[6], SHARED[10], SHARED[12])


@dataclass(frozen=True)
class Case:
    """One call: its shape, its settings, its dtype."""

    shape: Shape
    settings: Settings
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.settings}, {self.dtype.name}, {self.shape}"

    @property
    def varies(self) -> bool:
        """Whether by chance all units are dropped, or none, in no run."""
        likely = max(self.settings.rate, 1 - self.settings.rate)
        return self.groups * -math.log2(likely) >= RARE

    @property
    def groups(self) -> int:
        """How many coefficients a call draws apart from each other."""
        return math.prod(
            1 if axis in self._shared else size for axis, size in enumerate(self.shape)
        )

    @property
    def _shared(self) -> set[int]:
        axes = (*self.settings.broadcast_dims, *self.settings.p_broadcast_dims)
        return {axis % len(self.shape) for axis in axes}


def cases(subject: Subject) -> Iterator[Case]:
    """Yield calls of all shapes, dtypes and shared axes, at a law of each kind."""
    quick, usual, others = subject.quick, subject.dtypes[0], subject.dtypes[1:]
    number = 0
    for shape in SHAPES_QUICK if quick else (*SHAPES, *LARGE):
        yield Case(shape, LAWS[number % len(LAWS)], usual)
        number += 1
    for dtype in others:
        for shape in (BATCH,) if quick else (DENSE, (128, 784), SMALL, (7,), (4099, 33)):
            yield Case(shape, LAWS[number % len(LAWS)], dtype)
            number += 1
    shared = [(usual, *one) for one in (SHARED_QUICK if quick else SHARED)]
    if not quick:
        shared += [(dtype, *one) for dtype in others for one in SHARED_IN_EACH_DTYPE]
    for dtype, shape, whole, p_only in shared:
        law = LAWS[number % len(LAWS)]
        settings = replace(law, broadcast_dims=whole, p_broadcast_dims=p_only)
        yield Case(shape, settings, dtype)
        number += 1


def all_cases(subject: Subject) -> Iterator[Case]:
    """Yield all these and, in a full run, a small call at every law."""
    yield from cases(subject)
    if not subject.quick:
        yield from at_every_law(subject)


def at_every_law(subject: Subject) -> Iterator[Case]:
    """Yield a small call at every law that there is, in each dtype in turn."""
    for number, law in enumerate(EVERY):
        dtype = subject.dtypes[number % len(subject.dtypes)]
        if dtype == np.float16 and law.ceiling > MOST_IN_HALF:
            dtype = subject.dtypes[0]
        yield Case(DENSE, Settings.of(law), dtype)


def seed_of(subject: Subject, case: Case, label: str) -> int:
    """Return the seed for a call."""
    return subject.seeds(f"{label} {case}", 1)[0]


def rng_of(subject: Subject, case: Case, label: str) -> np.random.Generator:
    """Return a generator for the inputs of a call."""
    return subject.rng(f"{label} {case} inputs")


def chance(subject: Subject, case: Case, label: str) -> tuple[np.random.Generator, int]:
    """Return both."""
    return rng_of(subject, case, label), seed_of(subject, case, label)


def numbers(rng: np.random.Generator, case: Case) -> Array:
    """Return numbers of both signs, with no zero and few digits, so that every dtype holds them."""
    drawn = rng.integers(1, 100, case.shape) * rng.choice([-1, 1], case.shape) / 16
    return np.asarray(drawn).astype(case.dtype)


LAST_DIGITS = 5  # of a number, which a few roundings may change
_POWERS = {"float16": 3, "bfloat16": 60, "float32": 60, "float64": 200}


def powers(rng: np.random.Generator, case: Case) -> Array:
    """Return powers of two of both signs: to multiply or divide by them rounds nothing.

    Each dtype has some that a narrower one has not, and that are lost on a way through it.
    """
    most = _POWERS[case.dtype.name]
    drawn = 2.0 ** rng.integers(-most, most + 1, case.shape) * rng.choice([-1, 1], case.shape)
    return np.asarray(drawn).astype(case.dtype)


def large(rng: np.random.Generator, case: Case) -> Array:
    """Return ± half of the largest power of two: times a small coefficient it is finite."""
    info = np.finfo(np.float32) if case.dtype.name == "bfloat16" else np.finfo(case.dtype)
    signs = rng.choice([-1.0, 1.0], case.shape)
    return np.asarray(signs * 2.0 ** (info.maxexp - 2)).astype(case.dtype)


def close_to_one(rng: np.random.Generator, case: Case) -> Array:
    """Return ±1, and ±1 with a one among the last digits, which a narrower dtype rounds away.

    It is far enough from the end for a few roundings of a product to leave it.
    """
    step = 2.0 ** (LAST_DIGITS - digits_of(case.dtype))
    drawn = 1 + step * rng.integers(0, 2, case.shape)
    return np.asarray(drawn * rng.choice([-1, 1], case.shape)).astype(case.dtype)


def digits(rng: np.random.Generator, case: Case) -> Array:
    """Return numbers with as many digits as the dtype has, and a few inf and NaN among them."""
    drawn = rng.standard_normal(case.shape)
    odd = rng.choice([0, 1, 2, 3], case.shape, p=[0.94, 0.02, 0.02, 0.02])
    return np.asarray(np.choose(odd, [drawn, np.inf, -np.inf, np.nan])).astype(case.dtype)
