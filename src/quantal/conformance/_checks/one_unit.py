"""Checks of the law of one coefficient."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import RareEvents
from quantal.conformance._finding import Finding
from quantal.conformance._laws import DROPOUT, HIGH_RATES, MAIN, PLAIN, UNIT_MEAN, VARY_P, VARY_Q
from quantal.conformance._precision import smallest
from quantal.conformance._questions import Faults, OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH, shape_for
from quantal.dilution import Dilution

SMALLEST = Faults((0.01,), (0.05,), (0.01,))
DRAWN = 12


def _main(trial: Trial) -> Iterator[OneLaw]:
    for law in MAIN:
        yield OneLaw(trial, law, BATCH)


def _others(trial: Trial, group: tuple[Dilution, ...]) -> Iterator[OneLaw]:
    for number, law in enumerate(group):
        yield OneLaw(trial, law, shape_for(number, trial.quick))


NEARLY_ALL = Dilution(0.9999, 5.0)


@statistical("drop-probability", fault="a rate off by 1%", parts=len(MAIN + PLAIN + HIGH_RATES) + 1)
def drop_probability(trial: Trial) -> Iterator[Finding]:
    """A unit is dropped with probability ``rate``, at low rates and at high ones."""
    for one in _main(trial):
        yield one.drops(SMALLEST)
    for one in _others(trial, PLAIN + HIGH_RATES):
        yield one.drops()
    # Of so few that are kept, that they are twice as many, or none, must do.
    yield OneLaw(trial, NEARLY_ALL, BATCH).drops(Faults(rate=(1.0,)))


@statistical("kept-values", fault="an α off by 5%", parts=len(MAIN + PLAIN + HIGH_RATES))
def kept_values(trial: Trial) -> Iterator[Finding]:
    """Kept coefficients follow p/p̄² with p ~ Beta(α + 1, β), for small α and for large."""
    for one in _main(trial):
        yield one.sizes(SMALLEST)
        yield one.in_range()
    for one in _others(trial, PLAIN + HIGH_RATES):
        yield one.sizes()
        yield one.in_range()


@statistical("mean", fault="a mean off by 1%", parts=len(MAIN + PLAIN))
def mean(trial: Trial) -> Iterator[Finding]:
    """E[c] = 1 + rate/(α + 1 − rate)."""
    for one in _main(trial):
        yield one.mean(SMALLEST)
    for one in _others(trial, PLAIN):
        yield one.mean()


@statistical("second-moment", fault="an E[c²] off by 2%", parts=len(MAIN))
def second_moment(trial: Trial) -> Iterator[Finding]:
    """E[c²] is that of the law."""
    for one in _main(trial):
        yield one.mean(Faults(mean=(0.02,)), power=2)


@statistical("vary-p", fault="a rate off by 2% to 20%, any difference of size", parts=len(VARY_P))
def vary_p(trial: Trial) -> Iterator[Finding]:
    """With vary="p" a kept unit is 1/p̄, whatever α."""
    for one in _others(trial, VARY_P):
        yield from one.ask()


@statistical("vary-q", fault="a rate off by 2% to 20%, an α by 10% or more", parts=3 * len(VARY_Q))
def vary_q(trial: Trial) -> Iterator[Finding]:
    """With vary="q" sizes follow Beta(α, β), apart from the mask."""
    for one in _others(trial, VARY_Q):
        yield from one.ask()


@statistical(
    "unit-mean", fault="a mean off by 2% or more, an α by 10% or more", parts=3 * len(UNIT_MEAN)
)
def unit_mean(trial: Trial) -> Iterator[Finding]:
    """With unit_mean E[c] = 1, whatever varies, and nothing else changes."""
    for one in _others(trial, UNIT_MEAN):
        yield from one.ask()


@statistical(
    "dropout-limit", fault="a rate off by 2% or more, any difference of size", parts=len(DROPOUT)
)
def dropout_limit(trial: Trial) -> Iterator[Finding]:
    """With α = inf it is dropout: 0, or 1/p̄."""
    for one in _others(trial, DROPOUT):
        yield from one.ask()


@statistical("drawn-laws", fault="a rate off by 2% or more, an α by 10% or more", parts=3 * DRAWN)
def drawn_laws(trial: Trial) -> Iterator[Finding]:
    """Laws drawn at random, by the seed of the run, hold as well."""
    chosen = laws.drawn_laws(trial.subject.rng("drawn-laws"), DRAWN)
    for one in _others(trial, chosen):
        yield from one.ask()


TINY = (
    (Dilution(1e-3, 0.2), 0.5),
    (Dilution(1e-3, math.inf), 0.5),
    (Dilution(1e-3, 30.0, vary="p"), 0.5),
    (Dilution(1e-3, 1.0, vary="q", unit_mean=True), 0.5),
    (Dilution(1e-4, 0.2), 1.0),
)
TINY_SHARED = (
    Settings(1e-3, math.inf, p_broadcast_dims=(0,)),
    Settings(1e-3, 1.0, vary="q", p_broadcast_dims=(0,)),
    Settings(1e-3, 3000.0, p_broadcast_dims=(0,)),  # at which hardly any p is 1
    Settings(1e-3, 1.0, broadcast_dims=(0,)),
)
SHARED_SHAPE = (2, 2**16)


@statistical(
    "tiny-rate",
    fault="a tiny rate doubled, or rounded to nothing",
    parts=len(TINY + TINY_SHARED) + 1,
)
def tiny_rate(trial: Trial) -> Iterator[Finding]:
    """A tiny rate drops as many units as it says, and no more."""
    for law, fault in TINY:
        yield OneLaw(trial, law, BATCH).drops(Faults(rate=(fault,)))
    for settings in TINY_SHARED:
        yield _shared_drops(trial, settings)
    law, size = Dilution(2.0**-17, 0.2), math.prod(BATCH)
    test = RareEvents(law.rate, size, laws.CELL)
    calls = test.samples(law.rate, trial.significance)
    seeds = trial.subject.seeds("tiny-rate", calls)  # not kept: they are many, and used once
    dropped = sum(_dropped(trial, law, seed) for seed in seeds)
    yield trial.judge(f"P(c = 0), {law}", test, dropped, calls, stated=law.rate)


def _shared_drops(trial: Trial, settings: Settings) -> Finding:
    """Ask how often the first units of groups are dropped."""
    law, stated = settings.law, settings.rate / 2
    test = laws.drop_test(law, smallest(trial.subject.dtype))
    n = test.samples(stated, trial.significance)
    calls = -(-n // SHARED_SHAPE[1])
    c = trial.subject.pool(settings, calls, SHARED_SHAPE)[:, 0].reshape(-1)[:n]
    dropped = int(np.count_nonzero(c == 0))
    return trial.judge(f"P(c = 0), {settings}", test, dropped, n, stated=stated)


def _dropped(trial: Trial, law: Dilution, seed: int) -> int:
    return int(np.count_nonzero(trial.subject.draw(Settings.of(law), seed, BATCH) == 0))
