"""Seeds trained together by vmap: the results of separate runs, and the same folders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_runs import fewer_pixels, small_run, trained
from test_jax_train import quick_compilation  # noqa: F401

from examples.run import Run
from examples.with_jax.seeds import train_seeds

SEEDS = (0, 1, 2)
LIMITS = {"ptb-medium": 1000, "reviews-lstm": None, "reviews-gru": None, "cifar10-wrn": 16}


def together(runs: Sequence[Run]) -> Sequence[Run]:
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(run)
        train_seeds(runs)
    return runs


@pytest.mark.parametrize(
    "name",
    ["mnist-mlp", "cifar10-wrn", "ptb-medium", "reviews-gru"],
)
def test_as_separate_runs(name: str, tmp_path: Path, data_folder: Path) -> None:
    def run(out: str, seed: int) -> Run:
        options = {"precision": "float64", "seed": seed, "limit": LIMITS.get(name, 160)}
        made = small_run(name, tmp_path / out, data_folder, **options)
        if name == "cifar10-wrn":  # XLA's grouped convolutions on a CPU are very slow
            made._data = fewer_pixels(made.data, 2)
            made.experiment = replace(made.experiment, batch=8)
        if name.startswith("reviews"):
            made.experiment = replace(made.experiment, batch=32)
        return made

    alone = [trained(run("alone", seed)) for seed in SEEDS]
    joint = [run("together", seed) for seed in SEEDS]
    if name == "cifar10-wrn":
        with pytest.warns(UserWarning, match="slower than one seed after another"):
            together(joint)
    else:
        together(joint)  # without a warning: here that is an error
    for one, other in zip(alone, joint, strict=True):
        np.testing.assert_allclose(other.watch.costs, one.watch.costs, rtol=1e-9)
        for expected, line in zip(one.metrics, other.metrics, strict=True):
            assert line == pytest.approx(expected, rel=1e-9, nan_ok=True)
        assert other.result["score"] == pytest.approx(one.result["score"], rel=1e-9, nan_ok=True)
    assert len({run.watch.costs[0] for run in joint}) == len(SEEDS)
    if name.startswith("reviews"):  # the split is drawn by reviews, of different lengths
        assert len({run.steps for run in joint}) > 1


class Break(Exception):
    pass


def test_they_go_on_from_where_each_stands(tmp_path: Path) -> None:
    def run(out: str, seed: int) -> Run:
        return small_run("digits-mlp", tmp_path / out, limit=192, epochs=3, seed=seed)

    whole = together([run("whole", seed) for seed in SEEDS])
    broken = [run("broken", seed) for seed in SEEDS]

    def stop(line: dict[str, Any]) -> None:
        if line["epoch"] == 1:
            raise Break

    # The first two have ended their second epoch when all are stopped.
    broken[1].watch.epoch = stop  # type: ignore[method-assign]
    with pytest.raises(Break):
        together(broken)
    again = [run("broken", seed) for seed in SEEDS]
    assert [run.first_epoch for run in again] == [2, 2, 1]
    together(again)
    for one, other in zip(whole, again, strict=True):
        for expected, line in zip(one.metrics, other.metrics, strict=True):
            assert line == pytest.approx(expected, rel=1e-5)


def test_what_cannot_be_trained_together(tmp_path: Path) -> None:
    two = [small_run("digits-mlp", tmp_path, rate=rate) for rate in (0.1, 0.2)]
    with pytest.raises(ValueError, match="runs: expected at least one, all equal but for their"):
        train_seeds(two)
    shared = [small_run("digits-mlp", tmp_path, devices=2)]
    with pytest.raises(ValueError, match="devices: expected 1 for seeds trained together"):
        train_seeds(shared)
