"""Checks of what may take a way of its own: other laws, dtypes and shared axes, in small calls.

The checks of streams, and of the ends of calls, look closely at one law in one dtype. These look
at each kind of call that an implementation may have separate code for.
"""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Largest, Proportion
from quantal.conformance._checks.granularity import first
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import PERIODS, Margin, by_place, margins
from quantal.conformance._checks.seeds import (
    NEAR,
    SEEDS,
    apart_test,
    calls_needed,
    compare,
    two_signals,
)
from quantal.conformance._checks.sizes import (
    ALWAYS,
    COPIED_MASK,
    copied_masks,
    copies_test,
    only_ends,
)
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, MAIN, UNIT_MEAN, VARY_P, VARY_Q
from quantal.conformance._precision import coarseness
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._signals import signals
from quantal.conformance._subject import Floats, Shape

LAW = MAIN[0]
WHOLE, P_ONLY = {"broadcast_dims": (0,)}, {"p_broadcast_dims": (0,)}

# All of them at a rate of one half, where masks are fair coins.
IN_EACH_DTYPE = (
    Settings.of(LAW),
    Settings.of(DROPOUT[2]),
    Settings.of(LAW, **WHOLE),
    Settings.of(LAW, **P_ONLY),
)
OTHERS = (
    *(Settings.of(law) for law in (VARY_Q[4], VARY_P[2], UNIT_MEAN[0])),
    Settings.of(DROPOUT[2], **WHOLE),
    *(Settings.of(law, **P_ONLY) for law in (VARY_Q[4], VARY_P[2], DROPOUT[2])),
)
DTYPES = 4  # at most

UNITS: Shape = (61, 47)
COPIES = 0.2
AT_ONE_PLACE = 0.2
ENDS: tuple[Shape, ...] = ((5, 7, 11),)
"""Calls that leave a rest, whatever power of two they are drawn in."""

ENDS_IN_A_LAYER: tuple[Shape, ...] = ((23,), (3, 335))
"""Others of which a layer makes many, where there are layers."""


@dataclass(frozen=True)
class Kind:
    """Settings and a dtype; the first of two or more axes is the one that may be shared."""

    settings: Settings
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.settings}, {self.dtype.name}"

    def seeds(self, trial: Trial, units: Shape, count: int) -> Floats:
        """Return draws of seeds in a row, (calls, *shape)."""
        shape = self._shape(units)
        start = trial.subject.seeds(f"{self} {units}", 1)[0] % (SEEDS - count)
        seeds = range(start, start + count)
        drawn = [trial.subject.draw(self.settings, seed, shape, self.dtype) for seed in seeds]
        return np.stack(drawn)

    def calls(self, trial: Trial, units: Shape, count: int) -> Floats:
        """Return calls of a layer, in the same form."""
        (seed,) = trial.subject.seeds(f"{self} {units}, calls", 1)
        return trial.subject.layer(self.settings, seed, self._shape(units), count, self.dtype)

    def apart(self, c: Floats) -> Floats:
        """Return the units of calls that are drawn apart from each other: of a group the first."""
        return (first(c, [1]) if self._shared else c).reshape(len(c), -1)

    def _shape(self, units: Shape) -> Shape:
        return (2, *units) if self._shared else units

    @property
    def _shared(self) -> bool:
        return bool(self.settings.broadcast_dims or self.settings.p_broadcast_dims)


def kinds(trial: Trial, others: int) -> Iterator[Kind]:
    """Yield every kind of call, of the less usual ones those in so many dtypes."""
    if trial.quick:
        yield from (Kind(settings, trial.subject.dtype) for settings in IN_EACH_DTYPE)
        return
    for number, dtype in enumerate(trial.subject.dtypes):
        for settings in (*IN_EACH_DTYPE, *OTHERS) if number < others else IN_EACH_DTYPE:
            yield Kind(settings, dtype)


@statistical(
    "streams-by-kind",
    fault="20% of units that are copies of others, in their call, of another seed or in another"
    " call, at any distance; at one place of 64 a rate off by 40%",
    parts=4 * DTYPES * len(IN_EACH_DTYPE + OTHERS),
)
def streams_by_kind(trial: Trial) -> Iterator[Finding]:
    """Units, seeds and calls are independent in each kind of call, and all places alike."""
    steps, units = range(1, NEAR + 1), math.prod(UNITS)
    for kind in kinds(trial, others=DTYPES):
        law = kind.settings.law
        test = apart_test(trial, units, NEAR, COPIES, law)
        places = Largest(Proportion(law.rate, slack=4 * CELL), sum(UNITS) + sum(PERIODS))
        count = max(
            calls_needed(trial, test, units, NEAR, COPIES),
            -(-places.samples(AT_ONE_PLACE, trial.significance) // (units // PERIODS[-1])),
        )
        drawn = {"seeds": kind.seeds(trial, UNITS, count)}
        if not trial.subject.lacks("calls"):
            drawn["calls"] = kind.calls(trial, UNITS, count)
        for what, c in drawn.items():
            made = two_signals(trial, kind.apart(c), law, kind.dtype)
            yield compare(trial, f"{what} {{}} apart, {kind}", made, steps, test, COPIES)
        own = kind.apart(drawn["seeds"])
        yield by_place(
            trial, f"P(c = 0), {kind}", places, margins(own == 0, None, UNITS), AT_ONE_PLACE
        )
        made = signals(law, own, coarseness(kind.dtype))
        yield at_all_distances(trial, f"{kind}", made, units // 2, COPIES)


@statistical(
    "ends-by-kind",
    fault="the first or last unit of a call always or never 0, or with the mask of another",
    parts=2 * (len(ENDS) + len(ENDS_IN_A_LAYER)) * (len(OTHERS) + DTYPES * len(IN_EACH_DTYPE)),
)
def ends_by_kind(trial: Trial) -> Iterator[Finding]:
    """The first and the last units of each kind of call are dropped as they should be."""
    for kind in kinds(trial, others=1):
        for units in ENDS:
            yield from _ends(trial, kind, units, "seeds")
        for units in () if trial.quick else ENDS_IN_A_LAYER:
            yield from _ends(
                trial, kind, units, "seeds" if trial.subject.lacks("calls") else "calls"
            )


def _ends(trial: Trial, kind: Kind, units: Shape, of: str) -> Iterator[Finding]:
    places = only_ends(np.empty((1, math.prod(units)))).shape[1]
    test = Largest(Proportion(kind.settings.rate, slack=4 * CELL), places)
    copied = copies_test(places)
    count = max(
        test.samples(ALWAYS, trial.significance), copied.samples(COPIED_MASK, trial.significance)
    )
    c = kind.seeds(trial, units, count) if of == "seeds" else kind.calls(trial, units, count)
    # The first ones and the last ones of a call are of different groups.
    dropped = only_ends(c.reshape(count, -1)) == 0
    where = f"{of}, {kind}"
    found = [Margin(f"first and last units of {units}", dropped.sum(0), np.full(places, count))]
    yield by_place(trial, f"P(c = 0), {where}", test, found, ALWAYS)
    yield copied_masks(trial, f"{units}, {where}", dropped)
