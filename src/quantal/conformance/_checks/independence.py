"""Checks that one unit of a call says nothing about another."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._bounds import Correlation
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, MAIN, PLAIN, UNIT_MEAN, VARY_P, VARY_Q
from quantal.conformance._precision import coarseness
from quantal.conformance._questions import MOST, OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH, shape_for
from quantal.conformance._signals import Signal, least_likely, pair_test, signals, within_calls
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

LAWS = (*PLAIN, *VARY_Q, *VARY_P, *DROPOUT, *UNIT_MEAN)
DRAWN = 6
COPIES = (0.05, 0.1, 0.2, 0.5)
FAULT = "a correlation of 1%"
LAW = MAIN[0]
CORRELATION = 0.01


def at_all_distances(
    trial: Trial,
    what: str,
    made: list[Signal],
    distances: int,
    stated: float,
) -> Finding:
    """Ask whether units of a call, up to so far apart, are uncorrelated in whatever they show."""
    test = pair_test(made, stated, len(made) ** 2 * distances)
    one, index, seen, terms = least_likely(list(within_calls(made, distances)), test)
    first, second = one.names
    about = f"{what}, {first} and {second} {index + 1} units apart"
    return trial.judge(about, test, seen, terms, stated=stated)


def copies(
    trial: Trial, law: Dilution, units: int, faults: tuple[float, ...], dtype: np.dtype[Any]
) -> tuple[float, int]:
    """Return the share of copies that can be found, and how many calls of so many units it takes.

    Of the distances up to half a call.
    """
    made, distances = signals(law, np.ones(1), coarseness(dtype)), units // 2
    for fault in faults:
        test = pair_test(made, fault, len(made) ** 2 * distances)
        if fault == faults[-1] or test.detectable(MOST // 2, trial.significance) <= fault:
            break
    return fault, -(-test.samples(fault, trial.significance) // (units - distances))


@statistical(
    "units-independent",
    fault="1% of units that are copies of others, at any distance; 2% to 50% at other laws",
    parts=len(MAIN + LAWS) + DRAWN,
)
def units_independent(trial: Trial) -> Iterator[Finding]:
    """Units of a call are independent, however far apart, at every rate and α."""
    drawn = laws.drawn_laws(trial.subject.rng("units-independent"), DRAWN)
    coarse = coarseness(trial.subject.dtype)
    for number, law in enumerate((*MAIN, *LAWS, *drawn)):
        shape = BATCH if law in MAIN else shape_for(number, trial.quick)
        units = math.prod(shape)
        wanted = (CORRELATION,) if law == LAW else (0.02,) if law in MAIN else COPIES
        stated, calls = copies(trial, law, units, wanted, trial.subject.dtype)
        made = signals(law, OneLaw(trial, law, shape).calls(calls), coarse)
        yield at_all_distances(trial, f"{law}", made, units // 2, stated)


# --- along one axis ------------------------------------------------------------------------------


def correlation_test(law: Dilution) -> Correlation:
    """Return the test of two standardised coefficients."""
    # Standardised by the exact law, a table's coefficients are off by a few cells' worth.
    slack = 4 * CELL * law.ceiling / law.std
    return Correlation(-law.mean / law.std, (law.ceiling - law.mean) / law.std, slack)


def correlation(
    trial: Trial,
    what: str,
    first: Floats,
    second: Floats,
    *,
    law: Dilution = LAW,
    stated: float = CORRELATION,
) -> Finding:
    """Ask whether pairs of coefficients are uncorrelated."""
    a, b = (half.reshape(-1).astype(np.float64) for half in (first, second))
    covariance = np.dot(a, b) / a.size - np.mean(a) * np.mean(b) if a.size else 0.0
    seen = float(covariance) / law.var
    return trial.judge(what, correlation_test(law), seen, a.size, stated=stated)


def halves(c: Floats, axis: int, lag: int) -> tuple[Floats, Floats]:
    """Return disjoint pairs of slices, ``lag`` apart along an axis."""
    c = np.moveaxis(c, axis, -1)
    paired = c[..., : c.shape[-1] // (2 * lag) * 2 * lag].reshape(*c.shape[:-1], -1, 2, lag)
    return paired[..., 0, :], paired[..., 1, :]


def _along(trial: Trial, axis: int, lags: tuple[int, ...]) -> Iterator[Finding]:
    pairs = correlation_test(LAW).samples(CORRELATION, trial.significance)
    drawn = OneLaw(trial, LAW, BATCH).calls(-(-2 * pairs // math.prod(BATCH)))
    drawn = drawn.reshape(-1, *BATCH)
    for lag in lags:
        first, second = halves(drawn, axis + 1, lag)
        yield correlation(trial, f"correlation {lag} apart on axis {axis}", first, second)


@statistical("samples-independent", fault=FAULT, parts=2)
def samples_independent(trial: Trial) -> Iterator[Finding]:
    """Samples of a batch are independent."""
    yield from _along(trial, 0, (1, BATCH[0] // 2))


@statistical("channels-independent", fault=FAULT, parts=2)
def channels_independent(trial: Trial) -> Iterator[Finding]:
    """Channels are independent."""
    yield from _along(trial, 1, (1, BATCH[1] // 2))


@statistical("time-independent", fault=FAULT, parts=2)
def time_independent(trial: Trial) -> Iterator[Finding]:
    """Time steps are independent."""
    yield from _along(trial, 2, (1, BATCH[2] // 2))
