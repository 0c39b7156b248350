"""Checks that no value comes more often than by chance: coarse tables, stocks, copies anywhere.

Kept coefficients are almost all different, so those that come twice need no distance or order to
be found by: a mirrored row shows as well as a shuffled call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Atoms, Largest, Repeats, smallest
from quantal.conformance._cases import SMALL
from quantal.conformance._finding import Finding
from quantal.conformance._laws import MAIN, PLAIN, UNIT_MEAN, VARY_Q
from quantal.conformance._precision import is_half
from quantal.conformance._questions import OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH, FEW_UNITS, shape_for
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

LAW = MAIN[0]
FINE = tuple(law for law in MAIN + PLAIN + VARY_Q + UNIT_MEAN if laws.is_fine(law))
"""Laws whose kept coefficients single precision can tell apart."""

SHARED = (Settings.of(LAW, broadcast_dims=(0,)), Settings.of(LAW, p_broadcast_dims=(0,)))
COARSE = 2**13  # cells of a table that is too small
COPIES = 0.05
COPIES_QUICK = 0.1
BETWEEN = 0.3
CALLS = 300
GROUPS = (3, 90)
"""A call of groups of which enough show what they have drawn."""

# Square where they can be, as what mirrors or transposes needs that.
SHAPES: tuple[Shape, ...] = ((24, 24), (600,), (9, 8, 9), (5, 5, 5, 5), (3, 4, 4, 4, 3), (60, 10))


def most_frequent(law: Dilution) -> float:
    """Return the largest probability of one kept coefficient: a cell of a table."""
    return laws.CELL / (law.retain - laws.CELL)


@statistical(
    "resolution",
    fault="a p or q of 12 bits or fewer, as in float16; a table of 2¹³ cells, at any law",
    parts=lambda quick: 1 + 2 * len(FINE) + (0 if quick else len(SHARED)),
    needs="single precision",
)
def resolution(trial: Trial) -> Iterator[Finding]:
    """Kept coefficients are not rounded to a coarse grid, nor taken from a small stock."""
    # The density of the law's kept values is highest at p = 1: the fault shows there.
    most = most_frequent(LAW)
    coarse = 1 - float(laws.kept_cdf(LAW, np.asarray(LAW.ceiling * (1 - 2.0**-13))))
    atoms = Atoms(most)
    kept = OneLaw(trial, LAW, BATCH).kept(atoms.samples(coarse, trial.significance))
    _, counts = np.unique(kept, return_counts=True)
    frequent = int(np.max(counts, initial=0))
    what = f"share of the most frequent kept c, {LAW}"
    yield trial.judge(what, atoms, frequent, len(kept), stated=coarse)
    for number, law in enumerate(FINE):
        shape = BATCH if law in MAIN else shape_for(number, trial.quick)
        yield _fine_enough(trial, OneLaw(trial, law, shape))
        for dtype in trial.subject.dtypes[1:]:
            if not is_half(dtype) and law in MAIN:
                yield _fine_enough(trial, OneLaw(trial, law, BATCH, dtype))
    for settings in () if trial.quick else SHARED:
        test, count, stated = _fine_test(trial, LAW, COARSE)
        # A group shows its size unless all of it is dropped, as half of them are, or fewer.
        sizes = trial.subject.pool(settings, 1, (4, 3 * count))[0].max(axis=0)
        yield _seldom_back(trial, f"{settings}", test, sizes[sizes != 0][:count], stated)


def _fine_enough(trial: Trial, one: OneLaw) -> Finding:
    """Ask whether few values come back, as from a table that is large enough."""
    test, count, stated = _fine_test(trial, one.law, COARSE * one.law.retain)
    return _seldom_back(trial, f"{one}", test, one.kept(count), stated)


def _fine_test(trial: Trial, law: Dilution, cells: float) -> tuple[Repeats, int, float]:
    """Return the test for a table of so many cells, how many values it takes, and its fault."""
    test = Repeats(most_frequent(law))

    def share(n: int) -> float:  # of n draws from so many cells, those that have come before
        return 1 - cells / n * -math.expm1(-n / cells)

    count = smallest(lambda n: test.detectable(n, trial.significance) <= share(n))
    return test, count, share(count)


def _seldom_back(trial: Trial, what: str, test: Repeats, kept: Floats, stated: float) -> Finding:
    seen = len(kept) - len(np.unique(kept))
    about = f"share of kept c seen before, {what}"
    return trial.judge(about, test, seen, len(kept), stated=stated)


@statistical(
    "copies-in-a-call",
    fault="5% of units that are copies of others, wherever those are",
    parts=lambda quick: 2 if quick else 2 * len(SHAPES),
    needs="single precision",
)
def copies_in_a_call(trial: Trial) -> Iterator[Finding]:
    """No more coefficients of a call come twice than by chance: it has no symmetry."""
    for dtype in [dtype for dtype in trial.subject.dtypes if not is_half(dtype)][:2]:
        for shape in (SMALL,) if trial.quick else SHAPES:
            units, stated = math.prod(shape), COPIES_QUICK if trial.quick else COPIES
            needed = _within(LAW, units).samples(stated, trial.significance)
            # A fifth to spare, since how many are kept is left to chance.
            calls = -(-int(1.2 * needed) // int(LAW.retain * units))
            c = trial.subject.pool(Settings.of(LAW), calls, shape, dtype).reshape(calls, -1)
            what = f"share of kept c seen before in a call, {dtype.name}, {shape}"
            yield seen_before(trial, what, LAW, list(c), stated)


def seen_before(
    trial: Trial, what: str, law: Dilution, calls: list[Floats], stated: float
) -> Finding:
    """Ask whether no more values come back within their call than by chance."""
    values = [row[row != 0] for row in calls]
    seen = sum(len(row) - len(np.unique(row)) for row in values)
    test = _within(law, max(map(len, calls)))
    return trial.judge(what, test, seen, sum(map(len, values)), stated=stated)


def _within(law: Dilution, units: int) -> Repeats:
    """Return the test of values that come back within a call of so many units."""
    kept = law.retain * units
    most = int(kept + 6 * math.sqrt(kept * law.rate)) + 1
    return Repeats(most_frequent(law), min(most, units))


@statistical(
    "copies-between-calls",
    fault="two calls, of all that are made, that share 30% of their values, in whatever order",
    parts=4,
    needs="single precision",
)
def copies_between_calls(trial: Trial) -> Iterator[Finding]:
    """No two calls, of different seeds or of one layer, are made of the same values."""
    subject = trial.subject
    yield _shared(trial, "seeds", subject.pool(Settings.of(LAW), CALLS, FEW_UNITS))
    # What is drawn for a group shows in the largest of its units, unless all are dropped.
    in_groups = Settings.of(LAW, p_broadcast_dims=(0,))
    (seed,) = subject.seeds("copies-between-calls", 1)
    seed %= 2**31 - CALLS
    drawn = [subject.draw(in_groups, seed + step, GROUPS).max(axis=0) for step in range(CALLS)]
    yield _shared(trial, f"neighbouring seeds, {in_groups},", np.stack(drawn))
    if not subject.lacks("calls"):
        layer = subject.layer(Settings.of(LAW), seed, FEW_UNITS, CALLS)
        yield _shared(trial, "calls of a layer", layer)
        layer = subject.layer(in_groups, seed, GROUPS, CALLS).max(axis=1)
        yield _shared(trial, f"calls of a layer, {in_groups},", layer)


def _shared(trial: Trial, what: str, c: Floats) -> Finding:
    """Ask how many values the two calls share that share the most."""
    rows = [np.unique(row[row != 0]) for row in c.reshape(len(c), -1)]
    owner = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    values = np.concatenate(rows)
    order = np.argsort(values, kind="stable")
    values, owner = values[order], owner[order]
    shared: dict[tuple[int, int], int] = {}
    ends = (np.flatnonzero(np.append(values[1:] != values[:-1], True)) + 1).tolist()
    for start, end in itertools.pairwise([0, *ends]):
        for i in range(start, end):
            for j in range(i + 1, min(end, i + 32)):  # no value comes so often but by a fault
                pair = (int(owner[i]), int(owner[j]))
                shared[pair] = shared.get(pair, 0) + 1
    (one, other), seen = max(shared.items(), key=lambda item: item[1], default=((0, 1), 0))
    count = len(rows[one]) + len(rows[other])
    test = Largest(Repeats(most_frequent(LAW)), len(rows) * (len(rows) - 1) // 2)
    about = f"values that two {what} share: numbers {one} and {other}"
    return trial.judge(about, test, seen, count, stated=BETWEEN)
