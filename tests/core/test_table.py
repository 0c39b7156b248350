"""The tables against the exact law, and the literal recipe against both."""

import math
import threading

import numpy as np
import pytest
from scipy import special, stats

from quantal import Dilution, reference, table
from quantal.keys import CELLS, LEVELS

ALPHAS = (1e-3, 0.01, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0, 1e3, 1e5, 1e6)
RATES = (1e-4, 1e-3, 0.01, 0.1, 0.2, 0.5, 0.6, 0.8, 0.95, 0.99, 0.999)
LAWS = [
    Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    for rate in RATES
    for alpha in (*ALPHAS, math.inf)
    for vary, unit_mean in (("pq", False), ("pq", True), ("q", False))
] + [Dilution(rate, 0.2, vary="p") for rate in RATES]


def exact_cdf(law, c):
    """The law's CDF, by way of 1 − p where p > ½: at small β that is where the mass is."""
    if law._beta_parameters is None:
        return np.where(c >= law.ceiling, 1.0, np.where(c >= 0, law.rate, 0.0))
    a, b = law._beta_parameters
    p, w = np.clip(c / law.ceiling, 0, 1), np.clip((law.ceiling - c) / law.ceiling, 0, 1)
    kept = np.where(p < 0.5, special.betainc(a, b, p), 1 - special.betainc(b, a, w))
    return np.where(c < 0, 0.0, law.rate + law.retain * kept)


def kolmogorov_distance(law, row):
    """Between a row of float32 numbers, each equally likely, and the law rounded to float32.

    Rounding is part of the comparison since float32 has only so many numbers near the ceiling;
    coefficients below its smallest normal number count as that number.
    """
    values, counts = np.unique(row, return_counts=True)
    up_to = np.cumsum(counts) / CELLS
    assert values.dtype == np.float32
    above = (values.astype(float) + np.nextafter(values, np.float32(np.inf))) / 2
    below = (values.astype(float) + np.nextafter(values, np.float32(-np.inf))) / 2
    below[values <= np.finfo(np.float32).tiny] = 0
    exact_up_to, exact_before = exact_cdf(law, above), exact_cdf(law, below)
    exact_up_to[values == 0] = law.rate
    exact_before[values == 0] = 0
    exact_before[values == np.finfo(np.float32).tiny] = law.rate
    before = np.concatenate([[0], up_to[:-1]])
    return max(np.max(np.abs(up_to - exact_up_to)), np.max(np.abs(before - exact_before)))


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_table_is_the_law(law):
    zeros, share = divmod(law.rate * CELLS, 1)
    rows = np.zeros((2, CELLS))  # as in the table, but in float64
    for row, dropped in zip(rows, (int(zeros), int(zeros) + 1), strict=True):
        row[dropped:] = table._kept_means(law, CELLS - dropped)
    made = table.table(law)

    # Averaged over the choice of the row, the probability of a drop is the rate …
    chosen = np.array([1 - made.threshold / LEVELS, made.threshold / LEVELS])
    assert chosen @ np.mean(made.values == 0, axis=1) == pytest.approx(law.rate, rel=0, abs=1e-12)
    # … and the mean is exact; the float32 table has it to a float32's rounding.
    weights = np.array([1 - share, share])
    assert weights @ rows.mean(axis=1) == pytest.approx(law.mean, rel=1e-12)
    float32_mean = chosen @ made.values.mean(axis=1, dtype=np.float64)
    assert float32_mean == pytest.approx(law.mean, rel=2.0**-24)
    if law.rate <= 0.95:
        second = weights @ np.mean(rows**2, axis=1)
        assert second == pytest.approx(law.moment(2), rel=1e-4)

    assert np.all(np.isfinite(made.values))
    assert np.all(np.diff(made.values) >= 0)
    assert made.values.max() <= np.float32(law.ceiling)
    for row in made.values:
        assert kolmogorov_distance(law, row) <= 2.0**-15


@pytest.mark.parametrize(
    "law",
    [
        Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
        for rate in (1e-4, 0.1, 0.2, 0.5, 0.95, 0.999)
        for alpha in (1e-3, 0.2, 1.0, 10.0, 1e6, math.inf)
        for vary, unit_mean in (("pq", False), ("pq", True), ("q", False), ("p", False))
    ],
    ids=repr,
)
def test_shared_table_is_the_law(law):
    made = table.shared_table(law)
    keep = made.keep_below / LEVELS
    assert np.all((made.keep_below >= 0) & (made.keep_below <= LEVELS))
    assert np.all(np.isfinite(made.values))
    assert 1 - keep.mean() == pytest.approx(law.rate, rel=0, abs=1e-12)
    # Thresholds are integers and values float32, so the mean is exact up to such roundings.
    assert np.mean(keep * made.values) == pytest.approx(law.mean, rel=1e-6)
    if law.vary != "q" and not math.isinf(law.alpha):
        # Each threshold lies within the cell of the beta distribution that it stands for.
        edges = special.betaincinv(law.alpha, law.beta, np.arange(CELLS + 1) / CELLS)
        slack = 2 / LEVELS
        assert np.all(keep >= edges[:-1] - slack)
        assert np.all(keep <= edges[1:] + slack)


@pytest.mark.parametrize("rate", [1e-9, 1e-6, 3e-5, 1 - 1e-6, 1 - 2.0**-17])
@pytest.mark.parametrize("alpha", [0.2, math.inf])
def test_tiny_and_huge_rates_are_dropped_exactly(rate, alpha):
    made = table.table(Dilution(rate, alpha))
    second = made.threshold / LEVELS
    dropped = np.mean(made.values == 0, axis=1) @ [1 - second, second]
    assert dropped == pytest.approx(rate, rel=0, abs=1e-13)


@pytest.mark.parametrize("alpha", [1e-300, 1e-9, 1e9, 1e14, 1e300])
@pytest.mark.parametrize("vary", ["pq", "q"])
def test_alpha_beyond_the_promised_range_is_still_a_law(alpha, vary):
    law = Dilution(0.3, alpha, vary=vary)
    values = table.table(law).values
    assert np.all(np.isfinite(values))
    assert np.all(np.diff(values) >= 0)
    assert np.mean(values[0], dtype=float) == pytest.approx(law.mean, rel=1e-4)
    assert np.all(np.isfinite(table.shared_table(law).values))


@pytest.mark.parametrize("rate", [1e-14, 1e-9, 0.3, 1 - 1e-9])
@pytest.mark.parametrize("alpha", [1e-300, 1e-12, 1e-6, 1.0])
@pytest.mark.parametrize("vary", ["pq", "q"])
def test_extremes_of_both_parameters_together(rate, alpha, vary):
    # Warnings are errors here: a logarithm of 0 or a lost NaN would show.
    law = Dilution(rate, alpha, vary=vary)
    for values in (table.table(law).values, table.shared_table(law).values):
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values) >= 0)
        assert np.all((values >= 0) & (values <= np.float32(law.ceiling)))


def test_tables_are_read_only_and_made_once_even_by_many_threads(monkeypatch):
    made, calls = [], []
    original = table._kept_means
    monkeypatch.setattr(table, "_kept_means", lambda law, n: calls.append(law) or original(law, n))
    law = Dilution(0.123456, 0.654321)
    threads = [threading.Thread(target=lambda: made.append(table.table(law))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert all(one is made[0] for one in made)
    assert calls == [law, law]  # for its two rows
    with pytest.raises(ValueError, match="read-only"):
        made[0].values[0, 0] = 1
    shared = table.shared_table(law)
    for array in (shared.values, shared.keep_below):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


# --- the arbiter ---------------------------------------------------------------------------------

DRAWS = 10**7
FALSE_ALARM = 1e-9  # of each test below

PAPER = [(0.2, 0.2), (0.2, 0.5), (0.1, 0.2), (0.5, 5.0), (0.6, 10.0), (0.5, 1.0)]


@pytest.mark.parametrize(
    "law",
    [Dilution(*setting) for setting in PAPER]
    + [Dilution(0.2, 0.2, vary="q"), Dilution(0.5, 1.0, unit_mean=True), Dilution(0.3, 0.01)],
    ids=repr,
)
def test_ten_million_draws_of_the_recipe_fit_the_table(law):
    """Exact for every sample size: the binomial test and Massart's form of the DKW inequality."""
    c = reference.draw(law, (DRAWS,), np.random.default_rng(20)).c
    dropped = int(np.count_nonzero(c == 0))
    assert stats.binomtest(dropped, DRAWS, law.rate).pvalue > FALSE_ALARM

    made = table.table(law)
    chance = np.repeat([[1 - made.threshold / LEVELS], [made.threshold / LEVELS]], CELLS, axis=1)
    order = np.argsort(made.values, axis=None, kind="stable")
    values, cumulative = made.values.ravel()[order], np.cumsum(chance.ravel()[order]) / CELLS
    distinct = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)
    drawn = np.sort(c.astype(np.float32))
    observed = np.searchsorted(drawn, values[distinct], side="right") / DRAWS
    radius = math.sqrt(math.log(2 / FALSE_ALARM) / (2 * DRAWS)) + 2.0**-15
    assert np.max(np.abs(observed - cumulative[distinct])) <= radius
