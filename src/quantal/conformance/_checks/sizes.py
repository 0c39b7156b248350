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
from quantal.conformance._subject import Floats, Shape

LAW = MAIN[0]
ENDS = 8  # units from the start, and from the end, that are looked at one by one
COPIES = 0.9  # units that are copies, or always or never dropped, with some to spare
PAIRS = 0.5

# Around the powers of two at which implementations change their ways.
SIZES: tuple[Shape, ...] = (
    (), *((n,) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65)),
    *((n,) for n in (100, 127, 128, 129, 255, 257, 511, 513, 1000, 1023, 1024, 1025)),
    *((n,) for n in (2047, 2049, 4095, 4097, 8191, 16_385, 65_537)),
    (1, 1), (7, 1), (1, 9), (3, 3), (5, 7), (33, 5), (100, 10), (1, 1, 1), (3, 1, 5), (2, 3, 4, 5),
    (3, 3, 3, 3), (2, 3, 2, 3, 2), (1, 4, 1, 5, 3),
)  # fmt: skip
FEW: tuple[Shape, ...] = ((), (3,), (7,))


def _shapes(quick: bool) -> tuple[Shape, ...]:
    return FEW if quick else SIZES


@statistical(
    "call-sizes",
    fault="in calls of one size, a unit always or never dropped, or never large, or copies",
    parts=lambda quick: 4 * len(_shapes(quick)),
)
def call_sizes(trial: Trial) -> Iterator[Finding]:
    """Calls of every size and number of axes drop units as they should, the first and the last."""
    made = signals(LAW, np.ones(1))
    for shape in _shapes(trial.quick):
        units = math.prod(shape)
        ends, distances = min(units, 2 * ENDS), units // 2
        single = Largest(Proportion(LAW.rate, slack=4 * CELL), ends)
        of_kept = Largest(Proportion(0.5, slack=4 * CELL / LAW.retain), ends)
        pairs = pair_test(made, COPIES, len(made) ** 2 * max(ends - 1, 1))
        whole = pair_test(made, PAIRS, len(made) ** 2 * max(distances, 1))
        # The first and the last units need many calls, but the units in between only a few.
        calls = max(
            # Half of them are kept; a third more, since that is left to chance.
            int(of_kept.samples(COPIES / 2, trial.significance) * 4 / 3 / LAW.retain),
            pairs.samples(COPIES, trial.significance),
        )
        few = -(-whole.samples(PAIRS, trial.significance) // (units - distances))
        first_and_last, all_units = _draws(trial, shape, max(calls, few), few)
        dropped = (first_and_last == 0).sum(axis=0)
        margin = Margin(f"unit of {shape}", dropped, np.full(ends, len(first_and_last)))
        yield by_place(trial, "P(c = 0), first and last", single, [margin], COPIES / 2)
        kept = np.count_nonzero(first_and_last, axis=0)
        large = np.count_nonzero(signals(LAW, first_and_last)[1].values > 0, axis=0)
        margin = Margin(f"unit of {shape}", large, kept)
        yield by_place(trial, "P(c is large), first and last", of_kept, [margin], COPIES / 2)
        if units > 1:
            what = f"first and last units of {shape}"
            yield at_all_distances(trial, what, signals(LAW, first_and_last), ends - 1, COPIES)
            made_of_all = signals(LAW, all_units)
            yield at_all_distances(trial, f"units of {shape}", made_of_all, distances, PAIRS)


def _draws(trial: Trial, shape: Shape, calls: int, few: int) -> tuple[Floats, Floats]:
    """Return the first and last units of calls, and all units of a few of them."""
    settings, units = Settings.of(LAW), math.prod(shape)
    ends, whole = [], []
    for seed in trial.subject.seeds(f"call-sizes {shape}", calls):
        c = trial.subject.draw(settings, seed, shape).reshape(-1)
        ends.append(c if units <= 2 * ENDS else np.r_[c[:ENDS], c[-ENDS:]])
        if len(whole) < few:
            whole.append(c)
    return np.stack(ends), np.stack(whole)
