"""The folder of a run, and that a run which was killed gives the numbers of an unbroken one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from math import exp, isnan, nan, sqrt
from pathlib import Path

import numpy as np
import pytest

from examples.run import Run, train
from examples.settings import Settings

SETTINGS = Settings("digits-mlp", "torch", epochs=5, limit=128)
Stop = Callable[[str, int], None]


def go_on(*_: object) -> None:
    """Stop nowhere."""


def loop(run: Run, stop: Stop = go_on) -> None:
    """A training loop without a framework: each number depends on all before it."""
    state = 0.0 if run.checkpoint is None else json.loads(run.checkpoint.read_text())
    for epoch in range(run.first_epoch, run.epochs):
        masks = np.random.default_rng(run.stream_seed(epoch))
        for step, batch in enumerate(run.batches(epoch)):
            state = state / 2 + run.learning_rate(epoch) * masks.random() + float(batch.x.mean())
            run.step(epoch, step, state)
            stop("in an epoch", epoch)

        def save(path: Path, epoch: int = epoch, state: float = state) -> None:
            stop("before the checkpoint", epoch)
            path.write_text("half")
            stop("in the checkpoint", epoch)
            path.write_text(json.dumps(state))

        evaluated = dict.fromkeys(run.parts, (state, state / 10))
        run.record(epoch, 2 * state, evaluated, save)
        stop("after an epoch", epoch)
    run.finish(lambda x, masks: [], {})


PLACES = ("in an epoch", "before the checkpoint", "in the checkpoint", "after an epoch")


@pytest.fixture(autouse=True)
def _no_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """This loop has no sites to measure."""
    monkeypatch.setattr("examples.sparse.measure", lambda *_: {"mean": np.arange(3.0)})


def run_to_the_end(folder: Path, settings: Settings = SETTINGS) -> Run:
    with Run(settings, folder) as run:
        loop(run)
    return run


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("examples.sparse.measure", lambda *_: {})
        return run_to_the_end(tmp_path_factory.mktemp("unbroken"))


# --- what is written -----------------------------------------------------------------------------


def test_the_folder(tmp_path: Path) -> None:
    run = run_to_the_end(tmp_path)
    assert run.folder == tmp_path / "digits-mlp/torch/qsd-0.2-0.2/seed-0"
    assert {path.name for path in run.folder.iterdir()} == {
        "config.json", "versions.json", "metrics.jsonl", "checkpoint-5", "sparse.npz",
        "result.json", "lock",
    }  # fmt: skip
    assert Settings.read(run.folder / "config.json") == SETTINGS
    versions = json.loads((run.folder / "versions.json").read_text())
    assert versions["numpy"] == np.__version__
    assert {"python", "platform", "quantal", "scipy"} <= versions.keys()
    np.testing.assert_array_equal(np.load(run.folder / "sparse.npz")["mean"], [0, 1, 2])


def test_metrics_have_a_line_an_epoch(unbroken: Run) -> None:
    text = (unbroken.folder / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines == unbroken.metrics
    assert [line["epoch"] for line in lines] == [0, 1, 2, 3, 4]
    for line in lines:
        assert line["learning_rate"] == unbroken.experiment.optimiser.rate
        assert line["train_cost"] == 2 * line["test_cost"]
        assert line["test_error"] == line["test_cost"] / 10
        assert "train_error" not in line


def test_the_score_is_the_mean_of_the_last_three(unbroken: Run) -> None:
    assert unbroken.result is not None
    assert unbroken.result["epochs"] == 5
    costs = [line["test_cost"] for line in unbroken.metrics]
    assert unbroken.result["score"]["test_cost"] == np.mean(costs[2:])
    assert unbroken.result["score"].keys() == {"train_cost", "test_cost", "test_error"}


def record_once(settings: Settings, data: Path, out: Path, cost: float) -> dict:
    with Run(settings, out, data=data) as run:
        evaluated = dict.fromkeys(run.parts, (cost, nan))
        run.record(0, cost, evaluated, lambda path: path.write_text(""))
        return run.metrics[0] | {"scale": run.data.scale}


def test_texts_are_told_by_perplexity(data_folder: Path, tmp_path: Path) -> None:
    line = record_once(Settings("ptb-medium", "jax"), data_folder, tmp_path, 2.0)
    for part in ("train", "valid", "test"):
        assert line[f"{part}_perplexity"] == exp(2.0)
    lost = record_once(Settings("ptb-large", "jax"), data_folder, tmp_path, 1e9)  # diverged
    assert lost["test_perplexity"] == exp(700)
    lost = record_once(Settings("ptb-large", "keras"), data_folder, tmp_path, nan)
    assert isnan(lost["test_perplexity"])


def test_ratings_are_told_in_their_own_unit(data_folder: Path, tmp_path: Path) -> None:
    line = record_once(Settings("reviews-gru", "jax"), data_folder, tmp_path, 0.5)
    assert line["test_error"] == sqrt(0.5) * line["scale"]
    assert 0.1 < line["scale"] < 0.4


# --- going on ------------------------------------------------------------------------------------


class Stopped(Exception):
    """The run ends here."""


def stop_at(place: str, epoch: int) -> Stop:
    def stop(here: str, now: int) -> None:
        if (here, now) == (place, epoch):
            raise Stopped

    return stop


@pytest.mark.parametrize("place", PLACES)
def test_a_stopped_run_goes_on_to_the_same_numbers(
    place: str, tmp_path: Path, unbroken: Run
) -> None:
    for epoch in (0, 2, 4):  # more than once
        with pytest.raises(Stopped), Run(SETTINGS, tmp_path) as run:
            loop(run, stop_at(place, epoch))
    run = run_to_the_end(tmp_path)
    assert run.metrics == unbroken.metrics
    assert run.result == unbroken.result
    assert [path.name for path in run.folder.glob("*half*")] == []


def test_an_old_checkpoint_that_was_left_is_not_used_and_goes(
    tmp_path: Path, unbroken: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(path: Path) -> None:
        if path.name == "checkpoint-2":
            raise Stopped

    with monkeypatch.context() as patch, Run(SETTINGS, tmp_path) as run:
        patch.setattr("examples.run._remove", lose)
        with pytest.raises(Stopped):
            loop(run)
    assert {"checkpoint-2", "checkpoint-3"} <= {path.name for path in run.folder.iterdir()}
    assert run.first_epoch == 3
    run = run_to_the_end(tmp_path)
    assert run.metrics == unbroken.metrics
    assert [path.name for path in run.folder.glob("checkpoint-*")] == ["checkpoint-5"]


def test_metrics_without_their_checkpoint_are_dropped(tmp_path: Path) -> None:
    """Killed between the two: the epoch is run again, so its line must not stay."""
    with pytest.raises(Stopped), Run(SETTINGS, tmp_path) as run:
        loop(run, stop_at("in the checkpoint", 2))
    assert len(run.metrics) == 3
    with Run(SETTINGS, tmp_path) as run:
        assert len(run.metrics) == run.first_epoch == 2


@pytest.mark.parametrize("torn", ['{"epoch": 2, "lear', "{", '{"epoch": 2}'])
def test_a_torn_line_of_metrics_is_dropped(torn: str, tmp_path: Path, unbroken: Run) -> None:
    with pytest.raises(Stopped), Run(SETTINGS, tmp_path) as run:
        loop(run, stop_at("after an epoch", 1))
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write(torn)
    assert len(run.metrics) == 2
    assert run_to_the_end(tmp_path).metrics == unbroken.metrics


@pytest.mark.parametrize("place", ["in an epoch", "in the checkpoint"])
def test_a_killed_process_goes_on_to_the_same_numbers(
    place: str, tmp_path: Path, unbroken: Run
) -> None:
    paths = [*sys.path, str(Path(__file__).parents[2])]
    ended = subprocess.run(
        [sys.executable, __file__, str(tmp_path), place],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    with Run(SETTINGS, tmp_path) as run:  # its lock is gone with it
        assert run.first_epoch == 3
        loop(run)
    assert run.metrics == unbroken.metrics


def test_a_finished_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_to_the_end(tmp_path).result
    monkeypatch.setattr("examples.run.importlib.import_module", None)
    assert train(SETTINGS, tmp_path) == result


# --- who may go on -------------------------------------------------------------------------------


def test_two_at_once_are_refused(tmp_path: Path) -> None:
    with Run(SETTINGS, tmp_path) as first:
        words = f"another process is at work in {first.folder}"
        with pytest.raises(RuntimeError, match=words), Run(SETTINGS, tmp_path):
            pass
        with Run(SETTINGS.but(seed=1), tmp_path):
            pass
    with Run(SETTINGS, tmp_path):
        pass


def test_the_lock_goes_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(Stopped), Run(SETTINGS, tmp_path):
        raise Stopped
    with Run(SETTINGS, tmp_path):
        pass


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 6},
        {"limit": None},
        {"precision": "bfloat16"},
        {"stream": "portable"},
        {"rate": 0.2 + 1e-9},  # the same in the folder's name
        {"alpha": 0.2 + 1e-9},
    ],
)
def test_other_settings_are_refused_in_the_same_folder(changes: dict, tmp_path: Path) -> None:
    with Run(SETTINGS, tmp_path):
        pass
    name = next(iter(changes))
    with pytest.raises(ValueError, match=rf"holds a run with {name}=.*: give another --out"):
        Run(SETTINGS.but(**changes), tmp_path)
    Run(SETTINGS.but(device="cpu"), tmp_path)  # where it runs is no matter


# --- randomness ----------------------------------------------------------------------------------


def test_seeds_of_the_streams_differ_by_seed_and_epoch(tmp_path: Path) -> None:
    runs = [Run(SETTINGS.but(seed=seed), tmp_path) for seed in range(4)]
    seeds = [run.stream_seed(epoch) for run in runs for epoch in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert [run.stream_seed(0) for run in runs] == [run.stream_seed(0) for run in runs]


def test_every_site_has_a_key(tmp_path: Path) -> None:
    keys = [str(key) for seed in (0, 1) for key in Run(SETTINGS.but(seed=seed), tmp_path).keys]
    assert len(set(keys)) == len(keys) == 2 * 3


if __name__ == "__main__":  # the process that is killed

    def kill(here: str, now: int) -> None:
        if (here, now) == (sys.argv[2], 3):
            os.kill(os.getpid(), signal.SIGKILL)

    with Run(SETTINGS, Path(sys.argv[1])) as this:
        loop(this, kill)
