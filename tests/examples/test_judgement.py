"""The claims of the paper, judged by runs of which the outcome is known."""

from __future__ import annotations

from math import inf
from pathlib import Path

import numpy as np
import pytest

from examples import summaries
from examples.claims import CLAIMS, Claim, Quantity, Who
from examples.comparison import conditions
from examples.experiments import EXPERIMENTS
from examples.judgement import judge
from examples.records import Record
from examples.settings import Settings

QSD, DROPOUT = Who("qsd", 0.2, 0.2), Who("dropout", 0.2)
COST = Quantity("test_cost")
LOWER = Claim("mnist-mlp", "", QSD, DROPOUT, COST)
ALIKE = Claim("mnist-mlp", "", QSD, DROPOUT, COST, expected="alike")
LOW, HIGH = np.linspace(1, 2, 8), np.linspace(3, 4, 8)


def runs(
    layer: str, scores, rate=0.2, alpha=None, folder=Path("nowhere"), **settings
) -> list[Record]:
    rate = None if layer == "none" else rate
    base = Settings("mnist-mlp", "jax", layer, rate, alpha, **settings)
    return [
        Record(folder / str(seed), base.but(seed=seed), [], {"test_cost": cost, "train_cost": cost})
        for seed, cost in enumerate(scores)
    ]


def qsd(scores, **settings) -> list[Record]:
    return runs("qsd", scores, alpha=settings.pop("alpha", 0.2), **settings)


def verdict(claim: Claim, *records: list[Record]) -> str:
    (one,) = judge(conditions([run for some in records for run in some]), [claim])
    return one.verdict


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (LOW, HIGH, "reproduced"),
        (HIGH, LOW, "not"),
        (LOW, LOW - 0.01, "not"),
        (LOW, LOW + 0.01, "partly"),  # the same way, but by chance
        (LOW[:7], HIGH, "partly"),  # too few
        ([*LOW[:7], inf], HIGH, "partly"),  # one diverged
        (LOW, HIGH[:0], "not run"),
    ],
)
def test_lower_is_judged_by_direction_test_and_protocol(own, other, expected):
    assert verdict(LOWER, qsd(own), runs("dropout", other)) == expected


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (LOW, LOW + 0.01, "reproduced"),
        (LOW, HIGH, "not"),
        (HIGH, LOW, "not"),
        (LOW[:4], LOW[:4], "partly"),
    ],
)
def test_alike_means_that_no_difference_is_seen(own, other, expected):
    assert verdict(ALIKE, qsd(own), runs("dropout", other)) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [({"epochs": 50}, "partly"), ({"limit": 500}, "partly"), ({"epochs": 9}, "not run")],
)
def test_runs_unlike_the_papers_are_no_proof(change, expected):
    assert verdict(LOWER, qsd(LOW, **change), runs("dropout", HIGH, **change)) == expected


def test_runs_of_different_kinds_are_not_compared():
    assert verdict(LOWER, qsd(LOW, epochs=50), runs("dropout", HIGH)) == "not run"
    assert verdict(LOWER, qsd(LOW, unit_mean=True), runs("dropout", HIGH)) == "not run"
    assert verdict(LOWER, qsd(LOW, shared_p=True), runs("dropout", HIGH)) == "not run"
    assert verdict(LOWER, qsd(LOW, alpha=0.5), runs("dropout", HIGH)) == "not run"


def test_the_backend_with_most_runs_like_the_papers_decides():
    some = [*qsd(HIGH[:3]), *runs("dropout", LOW[:3])]
    torch = [*qsd(LOW), *runs("dropout", HIGH)]
    torch = [Record(run.folder, run.settings.but(backend="torch"), [], run.score) for run in torch]
    assert verdict(LOWER, some, torch) == "reproduced"
    short = [*qsd(HIGH, epochs=50), *runs("dropout", LOW, epochs=50)]
    assert verdict(LOWER, short, torch) == "reproduced"


def test_z_and_p_are_the_papers_and_the_numbers_are_shown():
    (one,) = judge(conditions([*qsd(LOW), *runs("dropout", HIGH)]), [LOWER])
    assert (one.ours, one.n, one.z, one.p) == ("1.50 against 3.50", "8, 8", "3.36", "0.00078")


def test_above_a_bound():
    claim = Claim(
        "mnist-mlp", "", Who("qsd", 0.3, 0.2), None, Quantity("train_cost"), "above", bound=2.5
    )
    assert verdict(claim, qsd(HIGH, rate=0.3)) == "reproduced"
    assert verdict(claim, qsd(LOW, rate=0.3)) == "not"
    assert verdict(claim, qsd(HIGH[:3], rate=0.3)) == "partly"
    assert verdict(claim, qsd(HIGH)) == "not run"


def test_what_rises_with_alpha():
    claim = Claim("mnist-mlp", "", QSD, DROPOUT, COST, "rises")
    alphas = EXPERIMENTS["mnist-mlp"].alphas
    rising = [qsd(LOW + n / 3, alpha=alpha) for n, alpha in enumerate(alphas)]
    falling = [qsd(LOW - n / 3, alpha=alpha) for n, alpha in enumerate(alphas)]
    dropout = runs("dropout", LOW + 3)
    assert verdict(claim, *rising, dropout) == "reproduced"
    assert verdict(claim, *rising[:3], dropout) == "partly"  # not all of the paper's
    assert verdict(claim, *falling, runs("dropout", LOW - 3)) == "not"


def test_below_dropout_at_every_rate():
    claim = Claim("mnist-mlp", "", QSD, None, COST, "lowest")
    rates = [rate for rate in EXPERIMENTS["mnist-mlp"].rates if rate]
    series = [runs("dropout", HIGH + rate, rate=rate) for rate in rates]
    nothing = runs("none", HIGH)
    assert verdict(claim, qsd(LOW), nothing, *series) == "reproduced"
    assert verdict(claim, qsd(LOW), nothing, *series[:2]) == "partly"
    assert (
        verdict(claim, qsd(LOW), nothing, *series[:-1], runs("dropout", LOW - 1, rate=0.5)) == "not"
    )
    assert verdict(claim, qsd(LOW)) == "not run"


def test_what_is_no_claim_is_better_or_worse():
    claim = Claim("mnist-mlp", "", QSD, DROPOUT, COST, claimed=False)
    assert verdict(claim, qsd(LOW), runs("dropout", HIGH)) == "better"
    assert verdict(claim, qsd(HIGH), runs("dropout", LOW)) == "worse"
    assert verdict(claim, qsd(LOW), runs("dropout", LOW)) == "no difference seen"


def test_outputs_are_judged_by_what_was_measured(tmp_path):
    def measured(values, layer, alpha=None):
        records = runs(layer, values, alpha=alpha, folder=tmp_path / layer)
        for record, value in zip(records, values, strict=True):
            record.folder.mkdir(parents=True)
            summaries.write({"masks-off/3/totals": np.array([value, 1, 1])}, record.folder)
        return records

    claim = Claim(
        "mnist-mlp", "", QSD, DROPOUT, Quantity(array="masks-off/3/totals", index=0), "lower"
    )
    records = [*measured(LOW, "qsd", 0.2), *measured(HIGH, "dropout")]
    (one,) = judge(conditions(records), [claim])
    assert one.verdict == "reproduced"
    assert one.ours == f"{1.5 / 3.5 - 1:+.1%}"
    assert verdict(claim, qsd(LOW), runs("dropout", HIGH)) == "not run"  # nothing was measured


def test_every_number_of_the_paper_is_in_a_claim():
    said = {(claim.experiment, claim.paper, claim.z) for claim in CLAIMS}
    for row in (
        ("mnist-mlp", "0.061 against 0.072", "3.36"),
        ("mnist-mlp", "0.061 against 0.07", "3.36"),
        ("mnist-mlp", "0.061 against 0.073", "3.36"),
        ("mnist-mlp", "0.064 against 0.073", "≥ 2.94"),
        ("mnist-mlp", "0.064 against 0.072", "≥ 2.94"),
        ("mnist-mlp", "> 0.1", ""),
        ("mnist-lenet5", "0.014 against 0.016", "3.26"),
        ("mnist-lenet5", "0.005 against 0.0055", "2.42"),
        ("mnist-lenet5", "-8%", ""),
        ("cifar10-wrn", "0.211 against 0.222", "2.21"),
        ("cifar10-wrn", "0.0487 against 0.0495", "2.048"),
        ("cifar10-wrn", "-2%", ""),
        ("ptb-medium", "81.8 against 83.5", "3.36"),
        ("ptb-large", "78.9 against 79.7", "3.36"),
        ("ptb-medium", "-17%", ""),
        ("ptb-medium", "-38%", ""),
        ("reviews-lstm", "0.152 against 0.161", "2.94"),
        ("reviews-lstm", "-15%", ""),
        ("reviews-lstm", "-34%", ""),
        ("reviews-gru", "0.148 against 0.153", "2.1"),
    ):
        assert row in said
