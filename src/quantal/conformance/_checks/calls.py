"""Checks of one layer called many times: it moves on, and never comes back."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Coins, Largest, Proportion, largest
from quantal.conformance._cases import PAIR, SMALL
from quantal.conformance._checks.granularity import first as first_of
from quantal.conformance._checks.independence import correlation, correlation_test
from quantal.conformance._checks.places import PERIODS, Margin, by_place
from quantal.conformance._checks.seeds import (
    LAW,
    NEAR,
    SEEDS,
    SETTINGS,
    WIDE,
    apart_test,
    calls_needed,
    compare,
    two_signals,
)
from quantal.conformance._checks.shared_p import Groups, divided_groups
from quantal.conformance._coins import BIAS
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, INF, MAIN, PLAIN, UNIT_MEAN, VARY_P, VARY_Q
from quantal.conformance._questions import values_of
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._shapes import BATCH, FEW_UNITS
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

LONG = 520
"""Calls of a long series: what comes back after 64 calls, or 256, or stands still, shows."""

LONGEST = 1100
DIFFERENT = (
    *(Settings.of(law) for law in (MAIN[0], MAIN[1], DROPOUT[0], VARY_P[0], VARY_Q[0])),
    Settings(0.5, INF, broadcast_dims=(0,)),
    Settings(0.5, 1.0, broadcast_dims=(0,)),
    Settings(0.5, 1.0, p_broadcast_dims=(1,)),
    Settings(0.4, 2.0, unit_mean=True),
)
COPIES = 0.02
LONG_COPIES = 0.15
SEVERAL, TOGETHER = 16, 0.08
SERIES = (MAIN[0], MAIN[2], VARY_Q[0], DROPOUT[0])
LAYERS = (
    *(Settings.of(law) for law in (UNIT_MEAN[1], UNIT_MEAN[7], VARY_P[2], PLAIN[-3], MAIN[0])),
    *(Settings.of(law, broadcast_dims=(0,)) for law in (MAIN[0], DROPOUT[2])),
    *(Settings.of(law, broadcast_dims=(-1, 0)) for law in (UNIT_MEAN[0], MAIN[1])),
    *(Settings.of(law, p_broadcast_dims=(0,)) for law in (MAIN[0], VARY_Q[3], UNIT_MEAN[4])),
    Settings.of(MAIN[0], broadcast_dims=(2,), p_broadcast_dims=(0,)),
    Settings.of(DROPOUT[0], p_broadcast_dims=(2,)),
)
LAYERS_QUICK = tuple(
    Settings.of(LAW, **{which: PAIR}) for which in ("broadcast_dims", "p_broadcast_dims")
)
"""What a layer is made with, besides the laws of long series."""

DIVIDED = 0.06
LAYER, SOME_CALLS = (2, 1021, 3), 5
STEPS = (*range(1, 17), 100, 1000, *(2**bit for bit in range(5, 31)))


def _series(trial: Trial, law: Dilution = LAW) -> Floats:
    """Return the coefficients of a long series of calls of one layer, (calls, units)."""
    (seed,) = trial.subject.seeds(f"series {law}", 1)
    settings = Settings.of(law)
    return trial.subject.layer(settings, seed, FEW_UNITS, LONG).reshape(LONG, -1)


@statistical(
    "calls-independent",
    fault="2% of units that are copies, at any distance; 15% in a long series; a dependence of 8%"
    " among three or four calls",
    parts=3,
    needs="calls",
)
def calls_independent(trial: Trial) -> Iterator[Finding]:
    """Successive calls of a layer are independent, and so are those that are hundreds apart."""
    units = math.prod(BATCH)
    test = apart_test(trial, units, NEAR, COPIES)
    count = calls_needed(trial, test, units, NEAR, COPIES)
    (seed,) = trial.subject.seeds("calls-independent", 1)
    c = trial.subject.layer(SETTINGS, seed, BATCH, count).reshape(count, -1)
    made = two_signals(trial, c)
    yield compare(trial, "calls {} apart", made, range(1, NEAR + 1), test, COPIES)
    steps = range(1, LONG // 2)
    test = apart_test(trial, math.prod(FEW_UNITS), len(steps), LONG_COPIES)
    series = _series(trial)
    made = two_signals(trial, series)
    yield compare(trial, "calls {} apart", made, steps, test, LONG_COPIES)
    yield _several(trial, series)


def _several(trial: Trial, series: Floats) -> Finding:
    """Ask whether a unit's masks in three calls, or in four, are independent."""
    gaps = list(itertools.combinations(range(1, SEVERAL + 1), 2))
    worst = Largest(Coins(BIAS), 2 * len(gaps))
    signs = np.where(series == 0, np.float32(1), np.float32(-1))
    found = []
    for one, two in gaps:
        for apart in ((0, one, two), (0, one, two, one + two)):
            left = len(signs) - apart[-1]
            product = np.prod([signs[step : step + left] for step in apart], axis=0)
            found.append((float(np.mean(product)), product.size, apart))
    index, seen, count = largest(worst.test, *zip(*[one[:2] for one in found], strict=True))
    what = f"masks of calls {', '.join(map(str, found[index][2]))} of a series"
    return trial.judge(what, worst, seen, count, stated=TOGETHER)


@exact("calls-differ", fault="a call that is the same as one of 1,099 others", needs="calls")
def calls_differ(trial: Trial) -> Iterator[Finding]:
    """In a long series no call of a layer repeats another, nor its mask alone."""
    subject = trial.subject
    for number, settings in enumerate(DIFFERENT[:2] if trial.quick else DIFFERENT):
        # The longest series of the first; the others change their dtypes in turn.
        count = LONGEST if not number else LONG // 2
        dtype = subject.dtypes[number % len(subject.dtypes)]
        (seed,) = subject.seeds(f"calls-differ {settings}", 1)
        c = subject.layer(settings, seed, WIDE, count, dtype).reshape(count, -1)
        for what, rows in (("calls", c), ("masks", c == 0)):
            first: dict[bytes, int] = {}
            again = [(first.setdefault(row.tobytes(), call), call) for call, row in enumerate(rows)]
            twice = [pair for pair in again if pair[0] != pair[1]]
            detail = f"call {twice[0][1]} is the same as call {twice[0][0]}" if twice else ""
            yield trial.require(f"{what} of a series differ, {settings}", not twice, detail, count)


@statistical(
    "calls-law",
    fault="a rate off by 5% or 10%, an α by 20% or 40%, in one call or place always or never 0",
    parts=lambda quick: 4 * len(SERIES) + (0 if quick else 3 * len(LAYERS)),
    needs="calls",
)
def calls_law(trial: Trial) -> Iterator[Finding]:
    """From the first call of a layer to the last, the law is the same, in every place."""
    for number, settings in enumerate(LAYERS_QUICK if trial.quick else LAYERS):
        yield from _settings_hold(trial, settings, number)
    for law in SERIES:
        c = _series(trial, law)
        dropped = c == 0
        yield from values_of(trial, f"in a series, {law}", law, c.reshape(-1))
        for what, hits in (("call", dropped), ("unit", dropped.T)):
            margins = _by_index(hits, what)
            places = sum(len(margin.hits) for margin in margins)
            test = Largest(Proportion(law.rate, slack=4 * CELL), places)
            yield by_place(trial, f"P(c = 0), {law}", test, margins, 0.49)


def _settings_hold(trial: Trial, settings: Settings, number: int) -> Iterator[Finding]:
    """Ask whether a layer's calls have the law and the shared axes that it was made with."""
    subject, law = trial.subject, settings.law
    dtype = subject.dtypes[0 if trial.quick else number % len(subject.dtypes)]
    shape = SMALL if trial.quick else LAYER
    (seed,) = subject.seeds(f"calls-law {settings}", 1)
    c = subject.layer(settings, seed, shape, SOME_CALLS, dtype)
    what = f"{settings}, {dtype.name}, in a series"
    whole, p_only = (
        [axis % len(shape) + 1 for axis in axes]
        for axes in (settings.broadcast_dims, settings.p_broadcast_dims)
    )
    own = first_of(c, whole)
    same = bool(np.all(c == own))
    yield trial.require(f"shared coefficients, {what}", same, "units of a group differ", c.size)
    sizes = np.max(own, axis=tuple(p_only), keepdims=True)
    same = not p_only or bool(np.all((own == 0) | (own == sizes)))
    yield trial.require(f"shared sizes, {what}", same, "kept values of a group differ", c.size)
    if p_only and not trial.quick:
        yield divided_groups(trial, what, law, _groups(own, p_only), DIVIDED)
    if not trial.quick:
        yield from values_of(trial, what, law, first_of(own, p_only).reshape(-1), dtype)


def _groups(own: Floats, p_only: list[int]) -> Groups:
    return Groups.of(own, own.shape[1:], tuple(axis - 1 for axis in p_only))


def _by_index(hits: NDArray[np.bool_], what: str) -> list[Margin]:
    """Return hits by index, and by index modulo 2 to 64."""
    total, size = hits.sum(axis=1), hits.shape[1]
    found = [Margin(what, total, np.full(len(total), size))]
    for period in PERIODS:
        folded = np.bincount(np.arange(len(total)) % period, total)
        counts = np.bincount(np.arange(len(total)) % period) * size
        found.append(Margin(f"{what} modulo {period}", folded, counts))
    return found


@statistical("seed-plus-call", fault="a correlation of 1%", parts=1, needs="calls")
def seed_plus_call(trial: Trial) -> Iterator[Finding]:
    """No call of one seed's layer is a call of another seed's."""
    count = 70
    (first,) = trial.subject.seeds("seed-plus-call", 1)
    first %= SEEDS - max(STEPS)
    seen: dict[bytes, tuple[int, int]] = {}
    for step in (0, *STEPS):
        rows = trial.subject.layer(SETTINGS, first + step, FEW_UNITS, count)
        for call, row in enumerate(rows):
            other = seen.setdefault(row.tobytes(), (step, call))
            if other != (step, call):
                detail = f"call {call} of seed s + {step} is call {other[1]} of seed s + {other[0]}"
                yield trial.require("calls of different seeds differ", False, detail, len(seen))
                break
    yield trial.require("calls of different seeds differ", True, "", len(seen))
    drawn = _neighbours(trial)
    what = "correlation of (s, k + 1) and (s + 1, k)"
    yield correlation(trial, what, drawn[:, 0, 1:], drawn[:, 1, :-1])


def _neighbours(trial: Trial) -> Floats:
    """Return draws of layers as an array (seeds, 2 neighbouring seeds, 4 calls, units)."""
    pairs = correlation_test(LAW).samples(0.01, trial.significance)
    seeds = trial.subject.seeds("layers", -(-pairs // (3 * math.prod(BATCH))))
    drawn = [
        [trial.subject.layer(SETTINGS, seed % (SEEDS - 1) + step, BATCH, 4) for step in (0, 1)]
        for seed in seeds
    ]
    return np.asarray(drawn).reshape(len(seeds), 2, 4, -1)
