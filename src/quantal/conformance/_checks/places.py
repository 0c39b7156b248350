"""Checks that the law is the same in every place: first and last, odd and even, along each axis."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantal.conformance import _laws as laws
from quantal.conformance._bounds import Largest, Proportion
from quantal.conformance._finding import Finding
from quantal.conformance._laws import DROPOUT, MAIN, PLAIN, UNIT_MEAN, VARY_P, VARY_Q
from quantal.conformance._precision import coarseness, smallest
from quantal.conformance._questions import MOST, OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH, SHAPES, shape_for
from quantal.conformance._signals import large_test, signals
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

PERIODS = range(2, 65)
LONG_PERIODS = range(65, 2049)
CLOSELY = 10_000
SHARES = (0.1, 0.2, 0.5, 1.0, 2.0)  # of the rate, or of 1 − rate
LAWS = (*MAIN, *PLAIN, *VARY_Q, *VARY_P, *DROPOUT, *UNIT_MEAN)
FEW = LAWS[:: len(SHAPES) + 1]  # one of each kind, and in full runs each of another shape

# Batches of dense layers, tokens, images: sizes odd and even, above 64 and below.
DENSE: tuple[Shape, ...] = (
    (128, 784), (64, 10), (256, 300), (257, 129), (1, 1000), (16, 50, 96), (8, 3, 32, 32),
    (2, 3, 7, 65, 9), (777,),
)  # fmt: skip
DENSE_QUICK: tuple[Shape, ...] = (BATCH,)


@dataclass(frozen=True)
class Margin:
    """Units by place: for each place, how many there were and how many were hit."""

    name: str
    hits: NDArray[Any]
    units: NDArray[Any]


def margins(hit: NDArray[np.bool_], among: NDArray[np.bool_] | None, shape: Shape) -> list[Margin]:
    """Return hits (calls, units) by index on each short axis, and by place modulo 2 to 64."""
    calls = len(hit)
    hits: NDArray[Any] = np.asarray(np.sum(hit, axis=0, dtype=np.int64))
    units: NDArray[Any] = np.full(hits.shape, calls)
    if among is not None:
        units = np.asarray(np.sum(among, axis=0, dtype=np.int64))
    found = []
    for axis, size in enumerate(shape):
        if 1 < size <= PERIODS[-1]:
            others = tuple(other for other in range(len(shape)) if other != axis)
            by_index = [np.sum(array.reshape(shape), axis=others) for array in (hits, units)]
            found.append(Margin(f"index on axis {axis} of {shape}", *by_index))
    return found + [folded(hits, units, period, shape) for period in PERIODS]


def folded(hits: NDArray[Any], units: NDArray[Any], period: int, shape: Shape) -> Margin:
    """Return hits and units, one after the other, by place modulo a period."""
    whole = len(hits) // period * period
    by_place = [array[:whole].reshape(-1, period).sum(axis=0) for array in (hits, units)]
    return Margin(f"place modulo {period} in {shape}", *by_place)


def by_place(
    trial: Trial,
    what: str,
    test: Largest[Proportion],
    found: list[Margin],
    stated: float,
) -> Finding:
    """Ask whether the hits are the same everywhere."""
    hits, units = (np.concatenate([getattr(m, name) for m in found]) for name in ("hits", "units"))
    off = np.abs(hits / np.maximum(units, 1) - test.expected)
    # Of many places those that are far off, by their standard errors, are looked at closely.
    far = np.argsort(-off * np.sqrt(units))[:CLOSELY] if len(off) > CLOSELY else np.arange(len(off))
    # Where the p-values are 0 to all digits, the largest deviation is shown.
    order = np.lexsort((-off[far], test.test.p_values(hits[far], units[far])))
    place = worst = int(far[order[0]])
    for margin in found:
        if place < len(margin.hits):
            break
        place -= len(margin.hits)
    where = f"{what}, {margin.name}: {place}"
    return trial.judge(where, test, int(hits[worst]), int(units[worst]), stated=stated)


def _count(shape: Shape) -> int:
    """Return the number of places that are looked at."""
    return sum(size for size in shape if 1 < size <= PERIODS[-1]) + sum(PERIODS)


def _test(
    trial: Trial, shape: Shape, each: Proportion, most: float
) -> tuple[Largest[Proportion], float, int]:
    """Return the test of a share in all places, its fault, and how many units it needs."""
    test = Largest(each, _count(shape))
    wanted = [part * min(each.expected, 1 - each.expected) for part in SHARES]
    stated = laws.affordable(test, wanted, trial.significance, int(most / PERIODS[-1]))
    return test, stated, test.samples(stated, trial.significance)


@statistical(
    "drop-by-place",
    fault="at one place of 64 a rate off by 10% or more, at one of 2,048 by a quarter of it",
    parts=lambda quick: len(FEW if quick else LAWS) + 1,
)
def drop_by_place(trial: Trial) -> Iterator[Finding]:
    """A unit is dropped with the same probability wherever it is."""
    for number, law in enumerate(FEW if trial.quick else LAWS):
        shape = shape_for(number, trial.quick)
        each = laws.drop_test(law, smallest(trial.subject.dtype), cells=4)
        test, stated, needed = _test(trial, shape, each, MOST)
        c = _calls(trial, law, shape, needed)
        found = margins(c == 0, None, shape)
        yield by_place(trial, f"P(c = 0), {law}", test, found, stated)
    yield _long_periods(trial, MAIN[0])


def _long_periods(trial: Trial, law: Dilution) -> Finding:
    """Ask whether places modulo more than 64, as the lanes and blocks of a device, are alike."""
    test = Largest(Proportion(law.rate, slack=4 * laws.CELL), sum(LONG_PERIODS))
    stated, units = law.rate / 4, math.prod(BATCH)
    needed = test.samples(stated, trial.significance)
    calls = -(-needed // (units // LONG_PERIODS[-1]))
    hits = np.sum(OneLaw(trial, law, BATCH).calls(calls) == 0, axis=0)
    count = np.full(units, calls)
    found = [folded(hits, count, period, BATCH) for period in LONG_PERIODS]
    return by_place(trial, f"P(c = 0), {law}", test, found, stated)


@statistical(
    "size-by-place",
    fault="at one place of 64 the share of large sizes off by 10% or more",
    parts=lambda quick: len(FEW if quick else LAWS),
)
def size_by_place(trial: Trial) -> Iterator[Finding]:
    """Kept coefficients are as large in one place as in another."""
    for number, law in enumerate(FEW if trial.quick else LAWS):
        shape = shape_for(number, trial.quick)
        dtype = trial.subject.dtype
        coarse = coarseness(dtype)
        each = large_test(law, coarse, smallest(dtype))
        if each is None:
            continue
        # A fifth to spare, since how many are kept is left to chance.
        test, stated, needed = _test(trial, shape, each, MOST * law.retain / 1.2)
        c = _calls(trial, law, shape, int(1.2 * needed / law.retain))
        hit = signals(law, c, coarse)[1].values > 0
        found = margins(hit, c != 0, shape)
        yield by_place(trial, f"P(c is large), {law}", test, found, stated)


@statistical(
    "drop-by-index",
    fault="at one index of an axis, however long, a rate off by half of it",
    parts=lambda quick: len(DENSE_QUICK if quick else DENSE),
)
def drop_by_index(trial: Trial) -> Iterator[Finding]:
    """A unit is dropped with the same probability at each index of long axes and of short."""
    for number, shape in enumerate(DENSE_QUICK if trial.quick else DENSE):
        law = MAIN[number % len(MAIN)]
        test = Largest(Proportion(law.rate, slack=4 * laws.CELL), sum(shape))
        # A count is whole, so a few units more may reveal a little less: hence two in a hundred.
        needed = test.samples(0.98 * law.rate / 2, trial.significance)
        units = math.prod(shape)
        calls = max(-(-needed * size // units) for size in shape)
        dropped = OneLaw(trial, law, shape).calls(calls).reshape(calls, *shape) == 0
        found = [
            Margin(
                f"index on axis {axis} of {shape}",
                np.sum(np.moveaxis(dropped, axis + 1, 0).reshape(size, -1), axis=1),
                np.full(size, calls * units // size),
            )
            for axis, size in enumerate(shape)
        ]
        yield by_place(trial, f"P(c = 0), {law}", test, found, law.rate / 2)


def _calls(trial: Trial, law: Dilution, shape: Shape, needed: int) -> Floats:
    """Return as many calls as it takes for ``needed`` units in each of 64 places."""
    places = max(PERIODS[-1], *(size for size in shape if size <= PERIODS[-1]), 1)
    calls = -(-needed // (math.prod(shape) // places))
    return OneLaw(trial, law, shape).calls(calls)
