"""Checks of units that share a whole coefficient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Largest, Proportion
from quantal.conformance._cases import PAIR, SMALL
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import Margin, by_place
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, MAIN, UNIT_MEAN, VARY_Q
from quantal.conformance._precision import coarseness
from quantal.conformance._questions import values_of
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._shapes import FEW_UNITS
from quantal.conformance._signals import pair_test, signals
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

Axes = tuple[int, ...]

LAW = MAIN[0]
ENOUGH = 256  # groups that are not all alike by chance, or in 2²⁵⁶ runs once

# All axes and all pairs of them, from the front and from the back, in any order.
SHARED: tuple[tuple[Shape, Axes], ...] = (
    *((SMALL, axes) for axes in (
        (), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (-1,), (-3,), (2, 0), (-1, 0),
        (1, -1), (-2, -3),
    )),
    *(((64, 10), axes) for axes in ((0,), (1,), (0, 1), (-1, 0))),
    *(((6, 7, 8, 9), axes) for axes in (
        (0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3), (0, 2, 3), (-1, 1), (3, -3),
    )),
    *(((300,), axes) for axes in ((0,), (-1,))),
    ((18, 1, 20), (2,)), ((1, 18, 20), (1,)), ((1, 18, 1, 20), (0, 1)), ((1, 300), (0,)),
    ((18, 1, 20), (1,)),
    *(((3, 4, 5, 6, 7), axes) for axes in ((1, 3), (0, 4), (2, 3, 4), (-1, 2))),
)  # fmt: skip
SHARED_QUICK = ((SMALL, ()), (SMALL, PAIR), (SMALL, (2, -3)))
LAWS = (LAW, VARY_Q[0], DROPOUT[0], UNIT_MEAN[3])

COPIES = 0.2
GROUPED: tuple[tuple[Shape, Axes], ...] = (
    ((3, 60, 70), (0,)), ((60, 3, 70), (1,)), ((60, 70, 3), (2,)), ((3, 2, 4099), (0, 1)),
    ((3, 4099, 2), (0, 2)), ((4099, 2, 3), (1, 2)), ((2, 60, 3, 70), (0, 2)),
    ((60, 2, 70, 3), (1, 3)), ((4099, 3), (1,)), ((3, 4099), (-2,)), ((1, 4099), (0,)),
    ((60, 1, 70), (-2,)),
)  # fmt: skip
GROUPED_QUICK = (GROUPED[4],)

FEW_GROUPS: tuple[tuple[Shape, Axes], ...] = (
    ((5, 9, 2, 3), (2, 3)), ((7, 3, 8), (1,)), ((3, 40), (0,)), ((33, 2), (1,)),
)  # fmt: skip
FEW_GROUPS_QUICK = ((SMALL, PAIR),)
ONE_GROUP = 600
"""Calls of which each has one group."""

ALWAYS = 0.49  # how far the share of a group that is always or never dropped is from a half


def first(c: Floats, axes: Sequence[int]) -> Floats:
    """Return one coefficient of each group that shares it."""
    for axis in axes:
        c = np.take(c, [0], axis=axis)
    return c


def varies(trial: Trial, what: str, own: Floats) -> Iterator[Finding]:
    """Ask whether the coefficients of groups, (calls, …), differ along each axis there is."""
    for axis in np.flatnonzero(np.array(own.shape[1:]) > 1):
        constant = bool(np.all(own == np.take(own, [0], axis=axis + 1)))
        detail = f"coefficients do not vary along axis {axis}"
        yield trial.require(f"{what}: axis {axis} varies", not constant, detail)


def draws(trial: Trial, settings: Settings, shape: Shape, groups: int, needed: int) -> Floats:
    """Return as many calls as have so many groups, (calls, *shape)."""
    return trial.subject.pool(settings, -(-needed // groups), shape)


def own_size(shape: Shape, axes: Sequence[int]) -> int:
    """Return the number of groups in a call."""
    return math.prod(shape) // math.prod(shape[axis] for axis in {a % len(shape) for a in axes})


@exact("broadcast-dims", fault="any difference within a group, none between groups")
def broadcast_dims(trial: Trial) -> Iterator[Finding]:
    """Coefficients are equal along broadcast_dims, and along no other axis."""
    for number, (shape, axes) in enumerate(SHARED_QUICK if trial.quick else SHARED):
        settings = Settings.of(LAWS[number % len(LAWS)], broadcast_dims=axes)
        c = draws(trial, settings, shape, own_size(shape, axes), ENOUGH)
        own = first(c, [axis % len(shape) + 1 for axis in axes])
        what = f"{shape}, {settings}"
        yield trial.require(f"{what}: equal", bool(np.all(c == own)), "units of a group differ")
        yield from varies(trial, what, own)


@statistical(
    "broadcast-law",
    fault="a rate off by 5% or more, an α by 20% or more, 20% of groups that are copies; one group"
    " always or never 0",
    parts=lambda quick: 3 * len(GROUPED_QUICK if quick else GROUPED) + few_groups(quick),
)
def broadcast_law(trial: Trial) -> Iterator[Finding]:
    """Shared coefficients follow the law, and groups are independent, however far apart."""
    coarse = coarseness(trial.subject.dtype)
    for number, (shape, axes) in enumerate(GROUPED_QUICK if trial.quick else GROUPED):
        law = LAWS[number % len(LAWS)]
        settings = Settings.of(law, broadcast_dims=axes)
        what = f"of groups, {shape}, {settings}"
        groups = own_size(shape, axes)
        c = draws(trial, settings, shape, groups, group_count(trial, law, groups, coarse))
        own = first(c, [axis % len(shape) + 1 for axis in axes]).reshape(len(c), groups)
        yield from values_of(trial, what, law, own.reshape(-1))
        yield at_all_distances(trial, what, signals(law, own, coarse), groups // 2, COPIES)
    yield from in_few_groups(trial, "broadcast_dims")


def few_groups(quick: bool) -> int:
    """Return how many questions there are about calls of few groups."""
    return len(FEW_GROUPS_QUICK) if quick else len(FEW_GROUPS) + 2


def in_few_groups(trial: Trial, kind: str) -> Iterator[Finding]:
    """Ask whether each group is dropped as often as others; and the law where there is but one."""
    for shape, axes in FEW_GROUPS_QUICK if trial.quick else FEW_GROUPS:
        yield _by_group(trial, shape, Settings.of(LAW, **{kind: axes}), axes)
    if not trial.quick:
        axes = tuple(range(len(FEW_UNITS)))
        settings = Settings.of(LAW, **{kind: axes})
        units = trial.subject.pool(settings, ONE_GROUP, FEW_UNITS)[:, 0, 0]
        yield from values_of(trial, f"all axes shared, {settings}", LAW, units)


def _by_group(trial: Trial, shape: Shape, settings: Settings, axes: Axes) -> Finding:
    groups = own_size(shape, axes)
    test = Largest(Proportion(LAW.rate, slack=4 * CELL), groups + sum(shape))
    calls = test.samples(ALWAYS, trial.significance)
    c = trial.subject.pool(settings, calls, shape)
    dropped = first(c, [axis + 1 for axis in axes])[:calls] == 0
    hits = dropped.sum(axis=0)
    found = [Margin(f"group of {shape}", hits.reshape(-1), np.full(groups, calls))]
    for axis in np.flatnonzero(np.array(hits.shape) > 1):
        by_index = hits.sum(axis=tuple(other for other in range(hits.ndim) if other != axis))
        units = np.full(len(by_index), calls * groups // len(by_index))
        found.append(Margin(f"index of a group on axis {axis} of {shape}", by_index, units))
    return by_place(trial, f"P(c = 0), {settings}", test, found, ALWAYS)


def group_count(trial: Trial, law: Dilution, groups: int, coarse: float) -> int:
    """Return how many groups it takes to find copies among those of a call."""
    made, distances = signals(law, np.ones(1), coarse), groups // 2
    test = pair_test(made, COPIES, len(made) ** 2 * max(distances, 1))
    return -(-test.samples(COPIES, trial.significance) * groups // (groups - distances))
