"""Checks of units that share a retain probability alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Largest, Mean, Overlapping, Proportion, largest
from quantal.conformance._cases import PAIR, SMALL
from quantal.conformance._checks.granularity import (
    COPIES,
    ENOUGH,
    Axes,
    draws,
    few_groups,
    first,
    group_count,
    in_few_groups,
    own_size,
    varies,
)
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import by_place
from quantal.conformance._checks.together import EIGHTH, eighths
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, INF, MAIN, lost
from quantal.conformance._precision import coarseness, smallest
from quantal.conformance._questions import values_of
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._signals import pair_test, signals, within_calls
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

LAW = MAIN[0]
LARGE_ALPHA = Dilution(0.5, 10.0)
VARY_P = Dilution(0.5, 1.0, vary="p")
VARY_Q = Dilution(0.5, 1.0, vary="q")
SIZED = (LAW, VARY_Q, Dilution(0.3, 2.0, unit_mean=True))  # whose sizes show p

# (shape, broadcast_dims, p_broadcast_dims)
SHARED: tuple[tuple[Shape, Axes, Axes], ...] = (
    *((SMALL, (), axes) for axes in (
        (0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2), (-1,), (-1, 0), (2, -3),
    )),
    ((18, 1, 20), (), (2,)), ((1, 18, 20), (), (1,)), ((1, 300), (), (0,)),
    ((18, 1, 20), (), (1,)), ((1, 1, 18, 20), (3,), (2,)),
    *((SMALL, whole, axes) for whole, axes in (
        ((2,), (0,)), ((0,), (1, 2)), ((1, 2), (0,)), ((1,), (1,)), ((0, 1), (1, 2)),
    )),
    *(((64, 10), (), axes) for axes in ((0,), (1,), (0, 1))),
    *(((6, 7, 8, 9), (), axes) for axes in ((0, 2), (1, 3), (2, 3), (0, -1))),
    ((300,), (), (0,)), ((3, 4, 5, 6, 7), (), (1, 3)), ((3, 4, 5, 6, 7), (4,), (0, 2)),
)  # fmt: skip
SHARED_QUICK = ((SMALL, (), PAIR),)

# Few units in each of many groups.
GROUPED: tuple[tuple[Shape, Axes], ...] = (
    ((4, 4099), (0,)), ((4099, 4), (-1,)), ((3, 2053, 2), (0, 2)), ((2053, 2, 3), (1, 2)),
    ((2, 3, 2053), (0, 1)), ((40, 4, 50), (1,)),
)  # fmt: skip
# The same, with another axis along which whole coefficients are shared.
BOTH_KINDS: tuple[tuple[Dilution, Shape, Axes, Axes], ...] = (
    (LAW, (2, 3, 2053), (0,), (1,)),
    (Dilution(0.3, 2.0, unit_mean=True), (2053, 3, 2), (-1,), (1,)),
    (VARY_P, (3, 2, 2053), (1,), (-3,)),
)
ALONE: tuple[tuple[Dilution, Shape, Axes, Axes], ...] = (
    (LAW, (1, 4099), (), (0,)),
    (VARY_Q, (60, 1, 70), (), (1,)),
)
"""A batch of one: each p is that of one unit."""

GROUPED_QUICK = (GROUPED[2],)
LAWS = (
    LAW, VARY_Q, VARY_P, Dilution(0.3, 2.0, unit_mean=True), Dilution(0.8, 5.0),
    Dilution(0.2, 0.5), Dilution(0.6, 10.0, vary="p"), Dilution(0.4, 3.0, vary="q"),
    Dilution(0.3, INF), Dilution(0.5, 2.0, vary="q", unit_mean=True),
    Dilution(0.3, 1.0, vary="p", unit_mean=True), LARGE_ALPHA, Dilution(0.4, 0.06),
    Dilution(0.5, 60.0), Dilution(0.4, 1e-3), Dilution(0.6, 1e4), Dilution(0.5, 0.06, vary="p"),
    Dilution(0.3, 0.1, vary="q"),
)  # fmt: skip


@exact("p-granularity", fault="any difference of kept values within a group")
def p_granularity(trial: Trial) -> Iterator[Finding]:
    """Kept values are equal along p_broadcast_dims; masks are not, nor are other groups."""
    for number, (shape, whole, shared) in enumerate(SHARED_QUICK if trial.quick else SHARED):
        settings = Settings.of(
            SIZED[number % len(SIZED)], broadcast_dims=whole, p_broadcast_dims=shared
        )
        c = draws(trial, settings, shape, own_size(shape, (*whole, *shared)), 2 * ENOUGH)
        what = f"{shape}, {settings}"
        own = first(c, [axis % len(shape) + 1 for axis in whole])
        yield trial.require(f"{what}: equal", bool(np.all(c == own)), "broadcast_dims differ")
        axes = tuple(axis % len(shape) + 1 for axis in shared)
        size = np.max(own, axis=axes, keepdims=True)
        alike = bool(np.all((own == 0) | (own == size)))
        yield trial.require(f"{what}: sizes", alike, "kept values of a group differ")
        masks = own == 0
        if math.prod(own.shape[axis] for axis in axes) > 1:
            varied = bool(np.any(masks != first(masks, axes)))
            yield trial.require(f"{what}: masks", varied, "masks are shared too")
        yield from varies(trial, f"{what}: sizes", size)


@dataclass(frozen=True)
class Groups:
    """Coefficients of groups that share p: (units of a group, calls, groups)."""

    c: Floats

    @classmethod
    def of(cls, c: Floats, shape: Shape, axes: Axes) -> Groups:
        """Return them from draws (calls, *shape)."""
        shared = [axis % len(shape) + 1 for axis in axes]
        c = np.moveaxis(c, shared, range(len(shared)))
        units = math.prod(c.shape[: len(shared)])
        return cls(c.reshape(units, c.shape[len(shared)], -1))


@statistical(
    "p-granularity-law",
    fault="a rate off by 5% or more, an α by 20% or more, 20% of groups that are copies; one group"
    " always or never 0",
    parts=lambda quick: 4 * len(_cases(quick)) + few_groups(quick),
)
def p_granularity_law(trial: Trial) -> Iterator[Finding]:
    """With shared p, each single coefficient follows the law, and groups are independent."""
    coarse = coarseness(trial.subject.dtype)
    for law, shape, whole, axes in _cases(trial.quick):
        settings = Settings.of(law, broadcast_dims=whole, p_broadcast_dims=axes)
        what = f"with shared p, {shape}, {settings}"
        groups = own_size(shape, (*whole, *axes))
        drawn = _draws(trial, settings, shape, group_count(trial, law, groups, coarse))
        c = Groups.of(drawn, drawn.shape[1:], axes).c
        yield from values_of(trial, what, law, c[0].reshape(-1))
        yield at_all_distances(trial, what, signals(law, c[-1], coarse), groups // 2, COPIES)
        if _masks_show(trial, law) and (law.vary == "q" or math.isinf(law.alpha)):
            # Masks that no p has a part in are independent, in whatever groups they are.
            masks = signals(law, drawn.reshape(len(drawn), -1), coarse)[:1]
            units = masks[0].values.shape[1]
            yield at_all_distances(trial, f"masks {what}", masks, units // 2, COPIES)
    yield from in_few_groups(trial, "p_broadcast_dims")


def _cases(quick: bool) -> list[tuple[Dilution, Shape, Axes, Axes]]:
    """Return laws with shapes in turn, broadcast_dims and p_broadcast_dims."""
    grouped = GROUPED_QUICK if quick else GROUPED
    chosen = LAWS[:4] if quick else LAWS
    turns = [(law, grouped[number % len(grouped)]) for number, law in enumerate(chosen)]
    single: list[tuple[Dilution, Shape, Axes, Axes]] = [
        (law, shape, (), axes) for law, (shape, axes) in turns
    ]
    return single if quick else [*single, *BOTH_KINDS, *ALONE]


def _masks_show(trial: Trial, law: Dilution) -> bool:
    """Return whether next to no coefficient is so small that its dtype may make it 0."""
    return lost(law, smallest(trial.subject.dtype)) < CELL


def _draws(trial: Trial, settings: Settings, shape: Shape, needed: int) -> Floats:
    """Return calls with so many groups, and of units that share a whole coefficient the first."""
    whole, shared = settings.broadcast_dims, settings.p_broadcast_dims
    drawn = draws(trial, settings, shape, own_size(shape, (*whole, *shared)), needed)
    return first(drawn, [axis % len(shape) + 1 for axis in whole])


BOTH = 0.02
BOTH_AT_LARGE_ALPHA = 0.008  # where p varies so little that masks are almost independent
GIVEN = 0.03
TOGETHER = 0.15
BETWEEN_GROUPS = 0.05
LARGE_GROUPS, IN_THE_MIDDLE = (300, 40), 0.85
CLEAR = (0.1, 0.9)
"""A p that is not too close to 0 or 1 to standardise by."""


@statistical(
    "p-granularity-masks",
    fault="P(one kept, one not) off by 0.02, P(kept given p) by 0.03, a correlation of 15% given p,"
    " of 5% between groups; as many in each group",
    parts=lambda quick: len(_cases(quick)) + (3 if quick else 5),
)
def p_granularity_masks(trial: Trial) -> Iterator[Finding]:
    """Masks of a group are independent given p, and are kept with that p."""
    for law, shape, whole, axes in _cases(trial.quick):
        units = math.prod(shape) // own_size(shape, axes)
        if units == 1 or not _masks_show(trial, law):
            continue
        # At small α most groups are kept as a whole or not at all: that twice as many are divided
        # shows.
        wanted = BOTH_AT_LARGE_ALPHA if law is LARGE_ALPHA else BOTH
        stated = min(wanted, _divided(law))
        needed = _divided_test(law, units).samples(stated, trial.significance)
        settings = Settings.of(law, broadcast_dims=whole, p_broadcast_dims=axes)
        drawn = _draws(trial, settings, shape, needed)
        groups = Groups.of(drawn, drawn.shape[1:], axes)
        yield divided_groups(trial, f"{settings}", law, groups, stated)
    yield from _given_p(trial)
    if not trial.quick:
        yield _numbers_given_p(trial)
        yield _between_groups(trial)


def _numbers_given_p(trial: Trial) -> Finding:
    """Ask whether the number that a large group drops is any that its p allows."""
    settings, (size, groups) = Settings.of(LAW, p_broadcast_dims=(0,)), LARGE_GROUPS
    # With p read off the size, and not too close to 0 or 1: eight groups in ten.
    slack = 2 * 2.0**-14 * math.sqrt(size / (CLEAR[0] * CLEAR[1]))
    test = Largest(Proportion(EIGHTH, slack=slack), 2)
    needed = 1.4 * test.samples(IN_THE_MIDDLE, trial.significance)
    c = draws(trial, settings, LARGE_GROUPS, groups, int(needed))
    p = np.max(c, axis=1).astype(np.float64).reshape(-1) * LAW.retain**2
    dropped = np.count_nonzero(c == 0, axis=1).reshape(-1)
    clear = (p > CLEAR[0]) & (p < CLEAR[1])
    rng = trial.subject.rng("numbers given p")
    found = eighths(dropped[clear], size, 1 - p[clear], rng, f"group of {size}, given p")
    return by_place(trial, f"{settings}", test, [found], IN_THE_MIDDLE)


def _between_groups(trial: Trial) -> Finding:
    """Ask whether masks of different groups are independent, whichever unit of a group it is."""
    settings, shape = Settings.of(LAW, p_broadcast_dims=(0,)), GROUPED[0][0]
    units, groups = shape
    mask = signals(LAW, np.ones(1), 0.0)[:1]
    distances = np.arange(1, math.prod(shape) // 2 + 1)
    other = distances % groups != 0  # and not another unit of the same one
    # Products that have the same unit of a group first share no group but in a row, or a ring.
    test = pair_test(mask, BETWEEN_GROUPS, int(np.count_nonzero(other)), sets=3 * units)
    calls = -(-test.samples(BETWEEN_GROUPS, trial.significance) // (math.prod(shape) // 2))
    drawn = draws(trial, settings, shape, groups, calls * groups)
    made = signals(LAW, drawn.reshape(len(drawn), -1), 0.0)[:1]
    (lagged,) = within_calls(made, len(distances))
    index, seen, count = largest(test.test, lagged.means[other], lagged.terms[other])
    what = f"masks of different groups, {distances[other][index]} units apart, {settings}"
    return trial.judge(what, test, seen, count, stated=BETWEEN_GROUPS)


def divided_groups(
    trial: Trial, where: str, law: Dilution, groups: Groups, stated: float
) -> Finding:
    """Ask how many groups keep their first unit and drop another: p decides both."""
    kept = groups.c > 0
    test, total = _divided_test(law, len(kept)), kept[0].size
    divided = np.count_nonzero(~kept[1:] & kept[:1], axis=(1, 2))
    unit = int(np.argmin(test.test.p_values(divided, total)))
    what = f"unit 0 of a group kept, unit {unit + 1} not, {where}"
    return trial.judge(what, test, int(divided[unit]), total, stated=stated)


def _divided_test(law: Dilution, units: int) -> Largest[Proportion]:
    return Largest(Proportion(_divided(law), slack=2 * CELL), units - 1)


def _divided(law: Dilution) -> float:
    """Return the probability that of two units of a group the first is kept, the second not."""
    return law.retain - (law.retain**2 if law.vary == "q" else mean_square(law))


def _given_p(trial: Trial) -> Iterator[Finding]:
    """Ask whether masks go by the p that the first unit of their group shows, if it is kept."""
    shape, axes = (GROUPED_QUICK if trial.quick else GROUPED)[0]
    given = Mean(0.0, 0.25, -1.0, 1.0, slack=2.0**-14)  # m − p, with p read off the size
    residual = 1 / math.sqrt(CLEAR[0] * CLEAR[1])
    pair = Mean(0.0, 1.0, -(residual**2), residual**2, slack=1e-3, fault_var=2.0)
    groups = own_size(shape, axes)
    units = math.prod(shape) // groups - 1
    test = Largest(Overlapping(pair, sets=2), units - 1)
    # A kept unit has p < ½ in a quarter of the cases, and is clear in four of five. That many
    # groups show as much as that many units, however many units share a p.
    needed = max(
        given.samples(GIVEN, trial.significance) / (0.5 * 0.25 * units),
        test.samples(TOGETHER, trial.significance) / (0.5 * 0.8),
    )
    settings = Settings.of(LAW, p_broadcast_dims=axes)
    drawn = draws(trial, settings, shape, groups, int(1.2 * needed))
    c = Groups.of(drawn, shape, axes).c.reshape(units + 1, -1)
    shows = c[0] > 0
    p = c[0, shows].astype(np.float64) * LAW.retain**2
    off = (c[1:, shows] > 0) - p
    for what, some in (("p < ½", p < 0.5), ("p ≥ ½", p >= 0.5)):
        chosen = off[:, some]
        mean = float(np.mean(chosen)) if chosen.size else math.nan
        yield trial.judge(f"P(kept) − p where {what}", given, mean, chosen.size, stated=GIVEN)
    some = (p > CLEAR[0]) & (p < CLEAR[1])
    standard = off[:, some] / np.sqrt(p[some] * (1 - p[some]))
    means = [float(np.mean(standard[:-lag] * standard[lag:])) for lag in range(1, units)]
    terms = [standard[lag:].size for lag in range(1, units)]
    lag, seen, count = largest(test.test, means, terms)
    what = f"masks of units {lag + 1} apart in a group, given p"
    yield trial.judge(what, test, seen, count, stated=TOGETHER)


def mean_square(law: Dilution) -> float:
    """Return E[p²] for p ~ Beta(α, β)."""
    if math.isinf(law.alpha):
        return law.retain**2
    a, b = law.alpha, law.beta
    return a / (a + b) * (a + 1) / (a + b + 1)
