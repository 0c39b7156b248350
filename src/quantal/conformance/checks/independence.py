"""Checks that one coefficient says nothing about another."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import special

from quantal.conformance.adapter import Settings
from quantal.conformance.bounds import Correlation, Proportion
from quantal.conformance.check import Finding, Trial, statistical
from quantal.conformance.checks.laws import CELL, LAWS
from quantal.conformance.subject import SHAPE
from quantal.dilution import Dilution

Floats = NDArray[np.float64]

LAW = LAWS[0]
CORRELATION = 0.01
FAULT = "a correlation of 1%"
UNITS = int(np.prod(SHAPE))
LAGS = (1, 2, 4, 16, UNITS // 2)  # in a flat call: 4 units share a block of portable bits


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
    a, b = first.reshape(-1), second.reshape(-1)
    covariance = np.dot(a, b) / a.size - np.mean(a) * np.mean(b) if a.size else 0.0
    seen = float(covariance) / law.var
    return trial.judge(what, correlation_test(law), seen, a.size, stated=stated)


def halves(c: Floats, axis: int, lag: int) -> tuple[Floats, Floats]:
    """Return disjoint pairs of slices, ``lag`` apart along an axis."""
    c = np.moveaxis(c, axis, -1)
    paired = c[..., : c.shape[-1] // (2 * lag) * 2 * lag].reshape(*c.shape[:-1], -1, 2, lag)
    return paired[..., 0, :], paired[..., 1, :]


def _along(trial: Trial, axis: int, lags: tuple[int, ...]) -> Iterator[Finding]:
    pairs = correlation_test(LAW).samples(CORRELATION, trial.level)
    drawn = trial.subject.coefficients(LAW, 2 * pairs)
    for lag in lags:
        first, second = halves(drawn, axis, lag)
        yield correlation(trial, f"correlation {lag} apart on axis {axis - 1}", first, second)


@statistical("units-independent", fault=FAULT, parts=len(LAGS))
def units_independent(trial: Trial) -> Iterator[Finding]:
    """Units of a call are independent."""
    pairs = correlation_test(LAW).samples(CORRELATION, trial.level)
    drawn = trial.subject.coefficients(LAW, 2 * pairs).reshape(-1, UNITS)
    for lag in LAGS:
        yield correlation(trial, f"correlation of units {lag} apart", *halves(drawn, 1, lag))


@statistical("samples-independent", fault=FAULT, parts=2)
def samples_independent(trial: Trial) -> Iterator[Finding]:
    """Samples of a batch are independent."""
    yield from _along(trial, 1, (1, SHAPE[0] // 2))


@statistical("channels-independent", fault=FAULT, parts=2)
def channels_independent(trial: Trial) -> Iterator[Finding]:
    """Channels are independent."""
    yield from _along(trial, 2, (1, SHAPE[1] // 2))


@statistical("time-independent", fault=FAULT, parts=2)
def time_independent(trial: Trial) -> Iterator[Finding]:
    """Time steps are independent."""
    yield from _along(trial, 3, (1, SHAPE[2] // 2))


@statistical("counts-vary", fault="a fixed number of dropped units a row, sample or call", parts=3)
def counts_vary(trial: Trial) -> Iterator[Finding]:
    """The number of dropped units is as variable as that of independent ones."""
    fault = 0.2  # a fixed number would turn a probability of at most 0.2 into 1
    shape = (4, 4)
    calls = Proportion(_likely(16)).samples(fault, trial.level)
    seeds = trial.subject.seeds("counts-vary", calls)
    small = np.stack([trial.subject.draw(Settings.of(LAW), seed, shape) for seed in seeds])
    # At most 0.2 is likely in any of them, so as many samples will do, and rows are more.
    large = trial.subject.coefficients(LAW, calls * SHAPE[1] * SHAPE[2])
    for what, c in (
        ("call", small.reshape(calls, -1)),
        ("sample", large.reshape(-1, SHAPE[1] * SHAPE[2])),
        ("row", large.reshape(-1, SHAPE[2])),
    ):
        size = c.shape[1]
        hits = int(np.count_nonzero(np.count_nonzero(c == 0, axis=1) == size // 2))
        what = f"exactly half of the {size} units of a {what} dropped"
        yield trial.judge(what, Proportion(_likely(size)), hits, len(c), stated=fault)


def _likely(size: int) -> float:
    """Return the probability that exactly half of so many units are dropped."""
    half, gammaln = size // 2, special.gammaln
    log_ways = gammaln(size + 1) - gammaln(half + 1) - gammaln(size - half + 1)
    return float(np.exp(log_ways + half * np.log(LAW.rate) + (size - half) * np.log(LAW.retain)))


# --- seeds and calls -----------------------------------------------------------------------------


@statistical("seeds-independent", fault=FAULT, parts=2)
def seeds_independent(trial: Trial) -> Iterator[Finding]:
    """Draws of different seeds are independent."""
    pairs = correlation_test(LAW).samples(CORRELATION, trial.level)
    # Up to three calls are left over when they are paired two apart.
    drawn = trial.subject.coefficients(LAW, 2 * pairs + 3 * UNITS)
    for lag in (1, 2):
        first, second = halves(drawn, 0, lag)
        yield correlation(trial, f"correlation of calls with far seeds, {lag}", first, second)


@statistical("neighbouring-seeds", fault=FAULT, parts=3)
def neighbouring_seeds(trial: Trial) -> Iterator[Finding]:
    """Draws of the seeds s and s + 1 are independent, also shifted by a unit."""
    # Pairs that are a unit apart are one fewer in each call.
    calls = -(-correlation_test(LAW).samples(CORRELATION, trial.level) // (UNITS - 1))
    settings = Settings.of(LAW)
    drawn = np.stack(
        [
            [trial.subject.draw(settings, seed + step, SHAPE).reshape(-1) for step in (0, 1)]
            for seed in trial.subject.seeds("neighbouring-seeds", calls)
        ]
    )
    first, second = drawn[:, 0], drawn[:, 1]
    yield correlation(trial, "correlation of seeds s and s + 1", first, second)
    yield correlation(trial, "same, a unit later", first[:, 1:], second[:, :-1])
    yield correlation(trial, "same, a unit sooner", first[:, :-1], second[:, 1:])


def _layers(trial: Trial) -> Floats:
    """Return draws of layers as an array (seeds, 2 neighbouring seeds, 4 calls, units)."""
    pairs = correlation_test(LAW).samples(CORRELATION, trial.level)
    seeds = trial.subject.seeds("layers", -(-pairs // (3 * UNITS)))
    ones, settings = np.ones(SHAPE, np.float32), Settings.of(LAW)
    drawn = [
        [trial.subject.calls(ones, settings, seed + step, 4) for step in (0, 1)] for seed in seeds
    ]
    return np.asarray(drawn, np.float64).reshape(len(seeds), 2, 4, UNITS)


@statistical("calls-independent", fault=FAULT, parts=2, needs_calls=True)
def calls_independent(trial: Trial) -> Iterator[Finding]:
    """Successive calls of a layer are independent."""
    drawn = _layers(trial)
    for lag in (1, 2):
        first, second = halves(drawn, 2, lag)
        yield correlation(trial, f"correlation of calls {lag} apart", first, second)


@statistical("seed-plus-call", fault=FAULT, parts=1, needs_calls=True)
def seed_plus_call(trial: Trial) -> Iterator[Finding]:
    """A layer's next call is not the next seed's layer's call."""
    drawn = _layers(trial)
    yield correlation(
        trial, "correlation of (s, k + 1) and (s + 1, k)", drawn[:, 0, 1:], drawn[:, 1, :-1]
    )
