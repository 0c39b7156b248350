"""Checks of the law of one coefficient."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantal.conformance.bounds import Atoms
from quantal.conformance.check import Finding, Trial, statistical
from quantal.conformance.checks import laws
from quantal.conformance.checks.laws import LAWS
from quantal.conformance.subject import FLAT
from quantal.dilution import Dilution

INF = float("inf")
VARY_P = Dilution(0.35, 1.0, vary="p")
VARY_Q = Dilution(0.35, 1.0, vary="q")
UNIT_MEAN = Dilution(0.5, 1.0, unit_mean=True)
DROPOUT = Dilution(0.3, INF)
TINY_RATE = Dilution(2.0**-17, 0.2)


@statistical("drop-probability", fault="a rate off by 1%", parts=len(LAWS))
def drop_probability(trial: Trial) -> Iterator[Finding]:
    """A unit is dropped with probability ``rate``."""
    for law in LAWS:
        yield laws.drops(trial, law)


@statistical("kept-values", fault="an α off by 5%", parts=len(LAWS))
def kept_values(trial: Trial) -> Iterator[Finding]:
    """Kept coefficients follow p/p̄² with p ~ Beta(α + 1, β)."""
    for law in LAWS:
        yield laws.sizes(trial, law)
        yield laws.in_range(trial, law, trial.subject.units(law, 2**16))


@statistical("resolution", fault="a p or q of 12 bits or fewer, as in float16", parts=1)
def resolution(trial: Trial) -> Iterator[Finding]:
    """Kept coefficients are not rounded to a coarse grid."""
    law = LAWS[0]  # the density of its kept values is highest at p = 1: the fault shows there
    coarse = 1 - float(laws.kept_cdf(law, np.asarray(law.ceiling * (1 - 2.0**-13))))
    test = Atoms(laws.CELL / law.retain)  # a cell of a table, among the kept
    kept = laws.kept_units(trial, law, test.samples(coarse, trial.level))
    _, counts = np.unique(kept, return_counts=True)
    largest = int(np.max(counts, initial=0))
    what = f"share of the most frequent kept c, {law}"
    yield trial.judge(what, test, largest, len(kept), stated=coarse)


@statistical("mean", fault="a mean off by 1%", parts=len(LAWS))
def mean(trial: Trial) -> Iterator[Finding]:
    """E[c] = 1 + rate/(α + 1 − rate)."""
    for law in LAWS:
        yield laws.moments(trial, law, 1, laws.MEAN_FAULT)


@statistical("second-moment", fault="an E[c²] off by 2%", parts=len(LAWS))
def second_moment(trial: Trial) -> Iterator[Finding]:
    """E[c²] is that of the law."""
    for law in LAWS:
        yield laws.moments(trial, law, 2, laws.SECOND_MOMENT_FAULT)


@statistical("vary-p", fault="a rate off by 1%, any difference of size", parts=1)
def vary_p(trial: Trial) -> Iterator[Finding]:
    """With vary="p" a kept unit is 1/p̄, whatever α."""
    yield laws.drops(trial, VARY_P)
    yield laws.all_alike(trial, VARY_P)


@statistical("vary-q", fault="a rate off by 1%, an α off by 5%, a mean off by 1%", parts=3)
def vary_q(trial: Trial) -> Iterator[Finding]:
    """With vary="q" sizes follow Beta(α, β), apart from the mask."""
    yield laws.drops(trial, VARY_Q)
    yield laws.sizes(trial, VARY_Q)
    yield laws.moments(trial, VARY_Q, 1, laws.MEAN_FAULT)


@statistical("unit-mean", fault="a mean off by 1%, an α off by 5%", parts=2)
def unit_mean(trial: Trial) -> Iterator[Finding]:
    """With unit_mean E[c] = 1, and nothing else changes."""
    yield laws.moments(trial, UNIT_MEAN, 1, laws.MEAN_FAULT)
    yield laws.sizes(trial, UNIT_MEAN)


@statistical("dropout-limit", fault="a rate off by 1%, any difference of size", parts=1)
def dropout_limit(trial: Trial) -> Iterator[Finding]:
    """With α = inf it is dropout: 0, or 1/p̄."""
    yield laws.drops(trial, DROPOUT)
    yield laws.all_alike(trial, DROPOUT)


@statistical("tiny-rate", fault="a rate of 2⁻¹⁷ rounded to nothing", parts=1)
def tiny_rate(trial: Trial) -> Iterator[Finding]:
    """A tiny rate still drops a unit now and then."""
    law, size = TINY_RATE, int(np.prod(FLAT))
    # A table has a zero cell in half of the calls only; independent units are sooner noticed.
    quiet = 0.5 + 0.5 * (1 - laws.CELL) ** size
    calls = int(np.ceil(np.log(trial.level) / np.log(quiet)))
    dropped = int(np.count_nonzero(trial.subject.units(law, calls * size) == 0))
    p_value = quiet**calls if dropped == 0 else 1.0
    detail = "" if dropped else f"not one of {calls * size} units was dropped"
    yield Finding(
        f"some unit is dropped, {law}",
        dropped > 0,
        dropped / (calls * size),
        law.rate,
        p_value,
        trial.level,
        calls * size,
        law.rate,
        law.rate,
        detail,
    )
