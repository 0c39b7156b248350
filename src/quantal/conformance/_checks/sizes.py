"""Checks of calls of all sizes, from no axes and one unit on."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Coins, Largest, Proportion, largest
from quantal.conformance._checks.copies import seen_before
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import Margin, by_place
from quantal.conformance._coins import BIAS
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, MAIN, UNIT_MEAN, VARY_Q
from quantal.conformance._precision import coarseness, is_half
from quantal.conformance._questions import values_of
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._signals import pair_test, signals
from quantal.conformance._subject import Floats, Shape

LAW = MAIN[0]
ENDS = 8  # units from the start, and from the end, that are looked at one by one
ALWAYS = 0.49  # how far the share of a unit that is always or never dropped is from a half
PAIRS = (0.2, 0.5, 0.9)  # the more units, the fewer calls it takes to see a correlation
SMALL = 64  # units of a call that can be made more often
COPIED_ENDS = 0.1
COPIED_MASK = 0.99
"""The correlation of two masks of which one is as good as always a copy."""


# Around the powers of two at which implementations change their ways.
SIZES: tuple[Shape, ...] = (
    (), *((n,) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65)),
    *((n,) for n in (100, 127, 128, 129, 255, 257, 511, 513, 1000, 1023, 1024, 1025)),
    *((n,) for n in (2047, 2049, 4095, 4097, 8191, 16_385, 65_537)),
    (1, 1), (7, 1), (1, 9), (3, 3), (5, 7), (33, 5), (100, 10), (1, 1, 1), (3, 1, 5), (2, 3, 4, 5),
    (3, 3, 3, 3), (2, 3, 2, 3, 2), (1, 4, 1, 5, 3), (1, 12, 10), (1, 3, 8, 8),
)  # fmt: skip
FEW: tuple[Shape, ...] = ((), (3,), (7,))


# Settings that a small call may confuse: the same rate, and only the rate.
OTHERS = (DROPOUT[2], VARY_Q[4], UNIT_MEAN[0])
TOGETHER: tuple[Shape, ...] = ((), (7,), (3, 5))
UNITS_TOGETHER, MOST_CALLS = 2**12, 600


def _shapes(quick: bool) -> tuple[Shape, ...]:
    return FEW if quick else SIZES


@statistical(
    "call-sizes",
    fault="in calls of one size, a unit always or never dropped, or never large, or copies; up to"
    " 64 units, a rate off by half of it; another law",
    parts=lambda quick: 5 * len(_shapes(quick)) + (0 if quick else 2 * len(TOGETHER) * len(OTHERS)),
)
def call_sizes(trial: Trial) -> Iterator[Finding]:
    """Calls of every size and number of axes drop units as they should, the first and the last."""
    coarse = coarseness(trial.subject.dtype)
    for shape in _shapes(trial.quick):
        units = math.prod(shape)
        ends, distances = min(units, 2 * ENDS), units // 2
        # Each of them, the first ones together and the last ones together.
        dropped = Largest(Proportion(LAW.rate, slack=4 * CELL), ends + 2)
        large = Largest(Proportion(0.5, slack=4 * CELL / LAW.retain), ends + 2)
        # The first and the last units need many calls, but the units in between only a few. Half
        # of them are kept; a third more, since that is left to chance.
        calls = int(large.samples(ALWAYS, trial.significance) * 4 / 3 / LAW.retain)
        stated = ALWAYS
        if units <= SMALL:
            stated = LAW.rate / 2
            calls = max(calls, dropped.samples(stated, trial.significance))
        if units > 1:
            calls = max(calls, copies_test(ends).samples(COPIED_MASK, trial.significance))
        copied, few = _pairs(trial, units, calls)
        c, all_units = _draws(trial, shape, max(calls, few), few)
        where, kept = f"unit of {shape}", c != 0
        for what, test, hit, among, fault in (
            ("P(c = 0)", dropped, ~kept, np.ones_like(kept), stated),
            ("P(c is large)", large, signals(LAW, c, coarse)[1].values > 0, kept, ALWAYS),
        ):
            hits, among_which = hit.sum(axis=0), among.sum(axis=0)
            found = [Margin(where, hits, among_which)]
            for name, end in (("first", slice(0, ENDS)), ("last", slice(-ENDS, None))):
                together = (np.atleast_1d(n[end].sum()) for n in (hits, among_which))
                found.append(Margin(f"the {name} units of {shape}, together", *together))
            yield by_place(trial, f"{what}, first and last", test, found, fault)
        if units > 1:
            made = signals(LAW, all_units, coarse)
            yield at_all_distances(trial, f"units of {shape}", made, distances, copied)
            yield copied_masks(trial, f"{shape}", c == 0)
            if not is_half(trial.subject.dtype):
                what = f"kept c seen before, first and last units of {shape}"
                yield seen_before(trial, what, LAW, list(c[:calls]), COPIED_ENDS)
    if not trial.quick:
        yield from _other_laws(trial)


def _other_laws(trial: Trial) -> Iterator[Finding]:
    """Ask whether small calls follow laws of one rate that differ in all else."""
    for shape in TOGETHER:
        calls = min(-(-UNITS_TOGETHER // math.prod(shape)), MOST_CALLS)
        for law in OTHERS:
            c = trial.subject.pool(Settings.of(law), calls, shape)
            yield from values_of(trial, f"calls of {shape}, {law}", law, c.reshape(-1))


def _pairs(trial: Trial, units: int, calls: int) -> tuple[float, int]:
    """Return the share of copies that so many calls reveal, and how many of them are enough."""
    made, distances = signals(LAW, np.ones(1), coarseness(trial.subject.dtype)), units // 2
    for copied in PAIRS:
        test = pair_test(made, copied, len(made) ** 2 * max(distances, 1))
        few = -(-test.samples(copied, trial.significance) // (units - distances))
        if few <= calls:
            break
    return copied, few


def only_ends(c: Floats) -> Floats:
    """Return the first and the last units of calls, (calls, units)."""
    return c if c.shape[1] <= 2 * ENDS else np.concatenate([c[:, :ENDS], c[:, -ENDS:]], axis=1)


def copies_test(units: int) -> Largest[Coins]:
    """Return the test of whether one of so many units has the mask of another in each call."""
    return Largest(Coins(BIAS), units * (units - 1) // 2)


def copied_masks(trial: Trial, what: str, dropped: NDArray[np.bool_]) -> Finding:
    """Ask whether no two units, of calls (calls, units), are always dropped together, or never."""
    calls, units = dropped.shape
    signs, test = np.where(dropped, 1.0, -1.0), copies_test(units)
    one, other = np.triu_indices(units, 1)
    index, seen, _ = largest(test.test, (signs.T @ signs / calls)[one, other], calls)
    where = f"masks of the end units {one[index]} and {other[index]} of {what}"
    return trial.judge(where, test, seen, calls, stated=COPIED_MASK)


def _draws(trial: Trial, shape: Shape, calls: int, few: int) -> tuple[Floats, Floats]:
    """Return the first and last units of calls, and all units of a few of them."""
    settings = Settings.of(LAW)
    ends: list[Floats] = []
    whole: list[Floats] = []
    for seed in trial.subject.seeds(f"call-sizes {shape}", calls):
        c = trial.subject.draw(settings, seed, shape).reshape(-1)
        ends.append(only_ends(c[None])[0])
        if len(whole) < few:
            whole.append(c)
    return np.stack(ends), np.stack(whole)
