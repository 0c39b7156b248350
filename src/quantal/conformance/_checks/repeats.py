"""Checks of streams that are too short: in one call of millions of units, and over many calls."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Largest, Proportion
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import Margin, by_place
from quantal.conformance._finding import Finding
from quantal.conformance._laws import MAIN
from quantal.conformance._questions import OneLaw
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._repeats import repeated_window, window_width
from quantal.conformance._shapes import BATCH
from quantal.conformance._signals import signals
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

LAW = MAIN[0]
LARGE = (9001, 1003)
"""Nine million units: thousands of samples, and more than 2²³ units."""

LARGE_QUICK = (4129, 1024)
COPIES = 0.01
LAST_COPIES = 0.1
PARTS = 64


def _large(trial: Trial) -> Floats:
    shape = LARGE_QUICK if trial.quick else LARGE
    return np.asarray(trial.subject.pool(Settings.of(LAW), 1, shape)[0])


def _unrepeated(trial: Trial, what: str, law: Dilution, c: Floats) -> Iterator[Finding]:
    """Ask whether no stretch of coefficients, nor of masks, comes twice."""
    stream = c.reshape(-1)
    width = window_width(max(law.rate, 1 - law.rate), stream.size)
    for about, values in (("coefficients", stream), ("masks", (stream == 0).astype(np.float64))):
        found = repeated_window(values, width)
        detail = (
            f"{width} {about} from unit {found[0]} on come again at {found[1]}" if found else ""
        )
        yield trial.require(f"{about} {what}", found is None, detail, stream.size)


@exact("no-repeats", fault="a stretch of 128 units that comes twice, anywhere")
def no_repeats(trial: Trial) -> Iterator[Finding]:
    """No stretch of a stream comes twice: in a call of millions, or in two of different seeds."""
    yield from _unrepeated(trial, "of one large call", LAW, _large(trial))
    calls = 8 if trial.quick else 16
    seeds = OneLaw(trial, LAW, BATCH).calls(calls)
    yield from _unrepeated(trial, "of calls with different seeds", LAW, seeds)
    if not trial.subject.lacks("calls"):
        (seed,) = trial.subject.seeds("no-repeats", 1)
        layer = trial.subject.layer(Settings.of(LAW), seed, BATCH, calls)
        yield from _unrepeated(trial, "of calls of one layer", LAW, layer)


@statistical(
    "large-call",
    fault="1% of units that are copies, at any distance; a rate off by 4% in one part of 64",
    parts=4,
)
def large_call(trial: Trial) -> Iterator[Finding]:
    """One call of millions of units, in thousands of samples, is as right as a small one."""
    c = _large(trial)
    dropped, (samples, units) = c == 0, c.shape
    part = c.size // PARTS
    parts = dropped.reshape(-1)[: PARTS * part].reshape(PARTS, part).sum(axis=1)
    margins = [Margin(f"part of {PARTS}", parts, np.full(PARTS, part))]
    yield by_place(trial, f"P(c = 0), {LAW}", _places(PARTS), margins, 0.04 * LAW.rate)
    margins = [
        Margin("sample", dropped.sum(axis=1), np.full(samples, units)),
        Margin("unit of a sample", dropped.sum(axis=0), np.full(units, samples)),
    ]
    yield by_place(trial, f"P(c = 0), {LAW}", _places(samples + units), margins, 0.4 * LAW.rate)
    flat = c.reshape(1, -1)
    mask = signals(LAW, flat)[:1]
    yield at_all_distances(trial, f"{LAW}", mask, c.size // 2, COPIES)
    last = flat[:, -math.prod(BATCH) :]
    yield at_all_distances(
        trial, f"{LAW}, the last units", signals(LAW, last), last.size // 2, LAST_COPIES
    )


def _places(count: int) -> Largest[Proportion]:
    return Largest(Proportion(LAW.rate, slack=4 * laws.CELL), count)
