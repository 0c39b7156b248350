"""The bounds: p-values are bounds, and power and sample sizes agree with each other and reality."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from quantal.conformance._bounds import (
    POWER,
    Atoms,
    Coins,
    Correlation,
    Kolmogorov,
    Largest,
    Mean,
    Overlapping,
    Proportion,
    RareEvents,
    Repeats,
    smallest,
)
from quantal.conformance._bounds import (
    Test as AnyTest,  # a name that pytest does not collect
)

TINY = 1e-6  # the false-alarm probability of each test in this file
RUNS = 4000
LEVEL = 0.01  # loose, so that simulations can see it

TESTS: dict[str, tuple[AnyTest, float]] = {
    "proportion": (Proportion(0.2), 0.05),
    "rare proportion": (Proportion(0.001), 0.004),
    "proportion with slack": (Proportion(0.5, slack=0.01), 0.06),
    "kolmogorov": (Kolmogorov(), 0.1),
    "kolmogorov with slack": (Kolmogorov(slack=0.01), 0.1),
    "mean": (Mean(0.3, 0.21, 0.0, 1.0), 0.05),
    "mean with slack": (Mean(0.3, 0.21, 0.0, 1.0, slack=0.01), 0.06),
    "correlation": (Correlation(-1.0, 1.0), 0.01),
    "atoms": (Atoms(1 / 64), 0.1),
}


def simulate(test: AnyTest, shift: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return what RUNS samples of n show where the truth is off by ``shift``."""
    if isinstance(test, Proportion):
        return rng.binomial(n, test.p + shift, RUNS)
    if isinstance(test, Mean):  # the widest law on [0, 1] of that mean
        return rng.binomial(n, test.mean + shift, RUNS) / n
    if isinstance(test, Correlation):
        # Two signs that agree with probability (1 + shift)/2: the counts of ++, +−, −+ and −−.
        same, other = (1 + shift) / 4, (1 - shift) / 4
        counts = rng.multinomial(n, [same, other, other, same], RUNS) / n
        product, first, second = (
            counts @ np.array(signs) for signs in ([1, -1, -1, 1], [1, 1, -1, -1], [1, -1, 1, -1])
        )
        return product - first * second
    if isinstance(test, Atoms):
        most = max(test.most, shift)
        others = np.full(63, (1 - most) / 63)
        return np.max(rng.multinomial(n, [most, *others], RUNS), axis=1)
    u = rng.random((RUNS, n))
    # Half of what lies within 2·shift below ½ is moved to just above ½: F(½) falls by shift.
    moved = (u > 0.5 - 2 * shift) & (u < 0.5) & (rng.random(u.shape) < 0.5)
    u = np.where(moved, 0.5 + u / 1e6, u)
    return np.array([Kolmogorov.distance(row, _uniform, _same, _same) for row in u])


def _uniform(x: np.ndarray) -> np.ndarray:
    return np.clip(x, 0, 1)


def _same(x: np.ndarray) -> np.ndarray:
    return x


def rejections(test: AnyTest, shift: float, n: int, level: float) -> int:
    seen = simulate(test, shift, n, np.random.default_rng(1))
    return sum(test.p_value(float(one), n) <= level for one in seen)


@pytest.mark.parametrize("name", TESTS)
@pytest.mark.parametrize("level", [1e-9, 1e-3])
def test_samples_and_detectable_are_inverse(name: str, level: float) -> None:
    test, fault = TESTS[name]
    n = test.samples(fault, level)
    assert test.detectable(n, level) <= fault < test.detectable(n - 1, level)


@pytest.mark.parametrize("name", TESTS)
def test_false_alarms_are_no_more_than_the_level(name: str) -> None:
    test, fault = TESTS[name]
    n = test.samples(fault, LEVEL)
    shift = 0.0 if isinstance(test, Atoms | Correlation) else test.slack
    shift = 0.0 if isinstance(test, Kolmogorov) else shift
    alarms = rejections(test, shift, n, LEVEL)
    assert stats.binom.sf(alarms - 1, RUNS, LEVEL) > TINY


def _coins(calls: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice([-1.0, 1.0], (RUNS, calls))


def _alarms(test: AnyTest, seen: np.ndarray, n: int) -> int:
    return sum(test.p_value(float(one), n) <= LEVEL for one in seen)


def test_false_alarms_of_products_that_overlap() -> None:
    # Three signs, 1 and 3 apart: each sign is in three products. And two of another law, 5 apart.
    rng, n = np.random.default_rng(2), 500
    signs = _coins(n + 3, rng)
    means = np.mean(signs[:, :-3] * signs[:, 1:-2] * signs[:, 3:], axis=1)
    assert stats.binom.sf(_alarms(Coins(), means, n) - 1, RUNS, LEVEL) > TINY
    rare = np.where(rng.random((RUNS, n + 5)) < 0.05, 0.95, -0.05) / np.sqrt(0.0475)
    means = np.mean(rare[:, :-5] * rare[:, 5:], axis=1)
    ends = [a * b for a in (rare.min(), rare.max()) for b in (rare.min(), rare.max())]
    pair = Overlapping(Mean(0.0, 1.0, min(ends), max(ends)), sets=2)
    assert stats.binom.sf(_alarms(pair, means, n) - 1, RUNS, LEVEL) > TINY
    means = np.mean(rare[:, :-5] * rare[:, 2:-3] * rare[:, 5:], axis=1)
    tops = [rare.min() * rare.max() ** 2, rare.max() ** 3]
    three = Overlapping(Mean(0.0, 1.0, *tops), sets=7)
    assert stats.binom.sf(_alarms(three, means, n) - 1, RUNS, LEVEL) > TINY


def test_false_alarms_of_the_largest() -> None:
    # All sums of signs over the same numbers: those of the Walsh-Hadamard transform.
    rng, n = np.random.default_rng(3), 64
    counts = rng.multinomial(n, np.full(16, 1 / 16), RUNS)
    parities = np.array([[(-1.0) ** (i & j).bit_count() for i in range(16)] for j in range(1, 16)])
    worst = np.max(np.abs(counts @ parities.T / n), axis=1)
    alarms = _alarms(Largest(Coins(), 15), worst, n)
    assert stats.binom.sf(alarms - 1, RUNS, LEVEL) > TINY
    assert alarms > 0  # not so wide that nothing fails


def test_false_alarms_of_repeats() -> None:
    rng, n = np.random.default_rng(4), 40
    for call in (None, 10):
        drawn = rng.integers(200, size=(RUNS, n))
        rows = drawn.reshape(RUNS, -1, n if call is None else call)
        seen = np.array([sum(len(one) - len(np.unique(one)) for one in row) for row in rows])
        alarms = _alarms(Repeats(1 / 200, call), seen, n)
        assert stats.binom.sf(alarms - 1, RUNS, LEVEL) > TINY


@pytest.mark.parametrize("by_table", [False, True])
def test_false_alarms_of_rare_events(by_table: bool) -> None:
    # A call has a cell for them or not; or units are independent at the rate itself.
    rng, size, calls = np.random.default_rng(5), 1000, 20
    test = RareEvents(1 / 4000, size, 1 / 1000)
    if not by_table:
        seen = rng.binomial(size * calls, test.rate, RUNS)
    else:
        rates = np.where(rng.random((RUNS, calls)) < 0.25, test.cell, 0.0)
        seen = rng.binomial(size, rates).sum(axis=1)
    assert stats.binom.sf(_alarms(test, seen, calls) - 1, RUNS, LEVEL) > TINY


def test_the_exact_test_wastes_nothing() -> None:
    # A binomial test of so many trials rejects about as often as its level says.
    alarms = rejections(Proportion(0.2), 0.0, 100_000, 0.05)
    assert stats.binom.cdf(alarms, RUNS, 0.045) > TINY
    assert stats.binom.sf(alarms - 1, RUNS, 0.05) > TINY


@pytest.mark.parametrize("name", TESTS)
def test_power_is_what_was_promised(name: str) -> None:
    test, fault = TESTS[name]
    n = test.samples(fault, LEVEL)
    found = rejections(test, fault, n, LEVEL)
    assert stats.binom.sf(RUNS - found - 1, RUNS, 1 - POWER) > TINY


def test_the_exact_test_needs_no_fewer() -> None:
    test, fault = TESTS["proportion"]
    n = test.samples(fault, LEVEL)
    found = rejections(test, fault, int(0.7 * n), LEVEL)
    assert stats.binom.sf(RUNS - found - 1, RUNS, 1 - POWER) < TINY


def test_bounds_against_tails_computed_exactly() -> None:
    n, test = 400, Mean(0.3, 0.21, 0.0, 1.0)
    for count in range(n + 1):
        shift = abs(count / n - 0.3)
        # (+ 1e-9: a deviation that is the same on both sides must not be lost to rounding)
        tail = stats.binom.cdf(n * (0.3 - shift) + 1e-9, n, 0.3)
        tail += stats.binom.sf(n * (0.3 + shift) - 1 - 1e-9, n, 0.3)
        assert test.p_value(count / n, n) >= min(tail, 1) * (1 - 1e-9)


def test_atoms_need_both_sides() -> None:
    # Half of the values at 0: too many of them, and too few, are both seen.
    values = np.r_[np.zeros(60), np.linspace(0.01, 1, 40)]

    def cdf(x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, 0, 0.5 + np.clip(x, 0, 1) / 2)

    def just_below(x: np.ndarray) -> np.ndarray:
        return np.where(x <= 0, -1, x)

    assert Kolmogorov.distance(values, cdf, just_below, _same) == pytest.approx(0.1, abs=0.02)
    fewer = np.r_[np.zeros(40), np.linspace(0.01, 1, 60)]
    assert Kolmogorov.distance(fewer, cdf, just_below, _same) == pytest.approx(0.1, abs=0.02)


def test_a_fault_within_the_slack_cannot_be_promised() -> None:
    with pytest.raises(ValueError, match="within the slack"):
        Kolmogorov(slack=0.1).samples(0.05, 1e-6)


def test_smallest_gives_up() -> None:
    with pytest.raises(ValueError, match="no affordable number"):
        smallest(lambda n: False)
