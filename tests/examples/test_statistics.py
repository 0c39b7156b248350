"""The statistics of runs, and which runs they are about."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from scipy import stats
from synthetic import write

from examples.experiments import EXPERIMENTS
from examples.records import Record, collect
from examples.settings import Settings
from examples.statistics import Condition, conditions, dropout_of, measures, quartiles


def a_condition(*costs, first=0, **settings):
    runs = []
    for seed, cost in enumerate(costs, first):
        one = Settings("mnist-mlp", "torch", seed=seed, **settings)
        runs.append(Record(None, one, [], {"test_cost": cost, "test_error": cost / 4}))
    return Condition(Settings("mnist-mlp", "torch", **settings), runs)


def test_the_papers_largest_z():
    dropout = a_condition(*range(8, 16), layer="dropout")
    qsd = a_condition(*range(8))
    test = qsd.against(dropout, "test_cost")
    assert round(test.z, 2) == 3.36
    assert test.p < 0.001
    assert test.matched == 8
    assert dropout.against(qsd, "test_cost").z == -test.z  # positive where the condition is lower


def test_pairs_of_equal_seeds():
    dropout = a_condition(1, 3, 5, 7, 100, inf, layer="dropout")
    qsd = a_condition(2, 4, 9, 99, inf, 50, first=1)
    # Seeds 1 to 5: 2 against 3, 4 against 5, 9 against 7, 99 against 100, and two that diverged.
    lower, pairs, p = qsd.paired(dropout, "test_cost")
    assert (lower, pairs) == (3, 5)
    # Of the differences -1, -1, 2, -1, the larger rank is 4 and the smaller ones have 2 each.
    assert p == pytest.approx(stats.wilcoxon([-1, -1, 2, -1]).pvalue)
    assert qsd.paired(qsd, "test_cost") == (0, 6, 1.0)


def test_pairs_see_what_the_spread_of_seeds_hides():
    spread = np.arange(16) / 10
    dropout = a_condition(*spread, layer="dropout")
    qsd = a_condition(*(spread - 0.01 - np.arange(16) / 1e4))
    assert qsd.against(dropout, "test_cost").p > 0.5
    assert qsd.paired(dropout, "test_cost") == (16, 16, pytest.approx(2 / 2**16))


def test_the_test_is_unpaired_and_counts_the_seeds_that_match():
    dropout = a_condition(1, 3, 5, 7, layer="dropout")
    qsd = a_condition(2, 4, 6, first=2)
    test = qsd.against(dropout, "test_cost")
    # Ranks of dropout: 1, 3, 5, 7, as expected without a difference.
    assert (test.z, test.p) == (0, pytest.approx(1))
    assert test.matched == 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_quartiles_are_those_of_numpy(count):
    values = np.random.default_rng(0).normal(size=(count, 5))
    expected = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    np.testing.assert_allclose(quartiles(values), expected, rtol=1e-12)


def test_quartiles_of_infinite_values():
    assert quartiles([1, inf, 2, inf]).tolist() == [1.75, inf, inf]
    assert quartiles([1, 2, inf]).tolist() == [1.5, 2, inf]
    assert quartiles([inf]).tolist() == [inf] * 3


def test_a_run_that_diverged_is_worse_than_all_others():
    condition = a_condition(1, 2, nan, inf)
    assert condition.diverged == 2
    assert condition.scores("test_error") == {0: 0.25, 1: 0.5, 2: inf, 3: inf}
    dropout = a_condition(5, 6, 7, 8, layer="dropout")
    like = a_condition(1, 2, 1e9, 1e8)
    assert condition.against(dropout, "test_cost").z == pytest.approx(
        like.against(dropout, "test_cost").z, abs=0.2
    )  # the two share their rank
    assert (
        condition.against(dropout, "test_cost").z
        < a_condition(1, 2).against(dropout, "test_cost").z
    )


def test_curves_have_quartiles_by_epoch():
    metrics = [[{"test_cost": cost} for cost in costs] for costs in ((3, 1), (4, nan), (8, inf))]
    base = Settings("mnist-mlp", "torch")
    runs = [Record(None, base.but(seed=s), m, {}) for s, m in enumerate(metrics)]
    assert Condition(base, runs).curve("test_cost").tolist() == [[3.5, inf], [4, inf], [6, inf]]


def test_what_the_paper_found():
    assert a_condition().finding("test_cost").value == 0.061
    assert a_condition(layer="dropout").finding("test_cost").value == 0.072
    assert a_condition(layer="dist-p", alpha=0.5).finding("test_cost").value == 0.073
    assert a_condition().finding("test_error") is None
    assert a_condition(rate=0.3).finding("test_cost") is None
    assert a_condition(layer="none").finding("test_cost") is None


def test_every_finding_of_the_paper_is_found():
    for plan in EXPERIMENTS.values():
        for finding in plan.findings:
            settings = Settings(plan.name, "jax", finding.layer, finding.rate, finding.alpha)
            assert Condition(settings).finding(f"test_{finding.measure}") == finding
            assert f"test_{finding.measure}" in measures(plan)


def test_the_score_is_the_mean_of_the_last_three_evaluations(tmp_path):
    write(Settings("digits-mlp", "jax", epochs=5), tmp_path)
    (record,) = collect(tmp_path)
    last = [line["test_cost"] for line in record.metrics[-3:]]
    assert len(record.metrics) == 5
    assert record.score["test_cost"] == pytest.approx(np.mean(last))
    (condition,) = conditions([record]).values()
    assert condition.scores("test_cost") == {0: record.score["test_cost"]}


def test_runs_are_collected_whatever_their_state(tmp_path):
    base = Settings("ptb-medium", "torch", epochs=4)
    write(base, tmp_path)
    write(base.but(seed=1), tmp_path, end=nan)
    write(base.but(seed=2), tmp_path, epochs=2)
    write(base.but(seed=10), tmp_path, epochs=0)
    with (tmp_path / base.but(seed=2).name / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 2, "test_c')  # being written
    (tmp_path / base.name / "checkpoint-4x").mkdir()
    (tmp_path / base.name / "checkpoint-4x" / "config.json").write_text("of something else")
    found = collect(tmp_path)
    assert [run.settings.seed for run in found] == [0, 1, 2, 10]
    assert [run.score is None for run in found] == [False, False, True, True]
    assert [run.diverged for run in found] == [False, True, False, False]
    assert [len(run.metrics) for run in found] == [4, 4, 2, 0]
    (condition,) = conditions(found).values()
    assert condition.scores("test_perplexity").keys() == {0, 1}
    assert collect(tmp_path / base.name) == found[:1]


def test_only_runs_that_differ_in_the_seed_are_put_together(tmp_path):
    base = Settings("mnist-mlp", "torch", epochs=1)
    others = [
        {"layer": "dropout"},
        {"rate": 0.3},
        {"alpha": 0.5},
        {"backend": "jax"},
        {"experiment": "mnist-lenet5"},
    ]
    write(base, tmp_path)
    write(base.but(seed=1, device="cpu"), tmp_path)
    for change in others:
        write(base.but(**change), tmp_path)
    for number, change in enumerate([{"epochs": 2}, {"limit": 9}, {"stream": "portable"}]):
        write(base.but(seed=2, **change), tmp_path / str(number))
    found = conditions(collect(tmp_path))
    assert sorted(len(condition.runs) for condition in found.values()) == [1] * 8 + [2]
    qsd = found[base]
    assert len(qsd.runs) == 2
    assert dropout_of(qsd, found).layer == "dropout"
    assert dropout_of(found[base.but(rate=0.3)], found) is None
    assert dropout_of(found[base.but(epochs=2)], found) is None
    assert dropout_of(found[base.but(layer="dropout")], found) is None


def test_the_same_run_in_two_places_is_an_error(tmp_path):
    for place in "ab":
        write(Settings("mnist-mlp", "torch", epochs=1), tmp_path / place)
    with pytest.raises(ValueError, match="runs: expected a folder with each run once"):
        conditions(collect(tmp_path))
