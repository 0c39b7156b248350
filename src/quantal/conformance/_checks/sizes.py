"""Checks of calls of all sizes, from no axes and one unit on."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Largest, Proportion
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import Margin, by_place
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, MAIN
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._signals import pair_test, signals
from quantal.conformance._subject import Shape

LAW = MAIN[0]
ENDS = 8  # units from the start, and from the end, that are looked at one by one
SHIFT = 0.45  # a unit that is always dropped, or never, with some to spare
PAIRS = 0.5

# Around the powers of two at which implementations change their ways.
SIZES: tuple[Shape, ...] = (
    (), *((n,) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65)),
    *((n,) for n in (100, 127, 128, 129, 255, 257, 511, 513, 1000, 1023, 1024, 1025)),
    *((n,) for n in (2047, 2049, 4095, 4097, 8191, 16_385, 65_535, 65_536, 65_537)),
    (1, 1), (7, 1), (1, 9), (3, 3), (5, 7), (33, 5), (100, 10), (1, 1, 1), (3, 1, 5), (2, 3, 4, 5),
    (3, 3, 3, 3), (2, 3, 2, 3, 2), (1, 4, 1, 5, 3),
)  # fmt: skip
FEW: tuple[Shape, ...] = ((), (1,), (3,), (7,), (2, 3))


def _shapes(quick: bool) -> tuple[Shape, ...]:
    return FEW if quick else SIZES


@statistical(
    "call-sizes",
    fault="in calls of one size, a unit that is always or never dropped, or copies of others",
    parts=lambda quick: 2 * len(_shapes(quick)),
)
def call_sizes(trial: Trial) -> Iterator[Finding]:
    """Calls of every size and number of axes drop units as they should, the first and the last."""
    for shape in _shapes(trial.quick):
        units = math.prod(shape)
        places, distances = min(units, 2 * ENDS), units // 2
        single = Largest(Proportion(LAW.rate, slack=4 * CELL), places)
        pairs = pair_test(signals(LAW, np.ones(1)), PAIRS, 9 * max(distances, 1))
        calls = single.samples(SHIFT, trial.significance)
        paired = -(-pairs.samples(PAIRS, trial.significance) // (units - distances))
        drawn = trial.subject.pool(Settings.of(LAW), max(calls, paired), shape)
        by_unit = (drawn == 0).reshape(len(drawn), units).sum(axis=0)
        ends = by_unit if units <= 2 * ENDS else np.r_[by_unit[:ENDS], by_unit[-ENDS:]]
        margin = Margin(f"unit of {shape}, first and last", ends, np.full(places, len(drawn)))
        yield by_place(trial, "P(c = 0)", single, [margin], SHIFT)
        if distances:
            made = signals(LAW, drawn[:paired].reshape(paired, units))
            yield at_all_distances(trial, f"calls of {shape}", made, distances, PAIRS)
