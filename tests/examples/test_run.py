"""The folder of a run, and that a run which was killed gives the numbers of an unbroken one."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from math import exp, isnan, nan, sqrt
from pathlib import Path

import numpy as np
import pytest

from examples.backends import require_backend
from examples.files import checksums
from examples.folder import DamagedError, read_times
from examples.progress import Lines
from examples.run import Run, train
from examples.settings import KERAS_BACKENDS, Settings

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


def names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in folder.glob(pattern))


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
        "config.json", "versions.json", "metrics.jsonl", "times.jsonl", "checkpoint-5",
        "checkpoint-5.sha256", "sparse.npz", "result.json", "lock",
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
        patch.setattr("examples.run.remove", lose)
        with pytest.raises(Stopped):
            loop(run)
    assert {"checkpoint-2", "checkpoint-3"} <= {path.name for path in run.folder.iterdir()}
    assert run.first_epoch == 3
    run = run_to_the_end(tmp_path)
    assert run.metrics == unbroken.metrics
    assert names(run.folder, "checkpoint-*") == ["checkpoint-5", "checkpoint-5.sha256"]


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


def test_a_finished_run_is_not_run_again_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    result = run_to_the_end(tmp_path).result
    monkeypatch.setattr("examples.run.importlib.import_module", None)
    assert train(SETTINGS, tmp_path, watch=Lines()) == result
    assert result is not None
    said = capsys.readouterr().out
    assert said.startswith(f"{SETTINGS.name}\nfinished before  cost train ")
    assert f"{result['score']['test_cost']:.3g}" in said


def test_the_time_of_every_epoch_is_kept_also_of_those_run_again(tmp_path: Path) -> None:
    run = Run(SETTINGS, tmp_path)
    run.together = 8
    with pytest.raises(Stopped), run:
        loop(run, stop_at("in the checkpoint", 2))
    with (run.folder / "times.jsonl").open("a") as file:
        file.write('{"epoch": 3, "sec')  # killed while it wrote
    run_to_the_end(tmp_path)
    times = read_times(run.folder)
    assert [line["epoch"] for line in times] == [0, 1, 2, 2, 3, 4]
    assert [line["together"] for line in times] == [8, 8, 8, 1, 1, 1]
    assert all(line["seconds"] >= 0 for line in times)


# --- what cannot be trusted ----------------------------------------------------------------------


def stopped_after(epochs: int, folder: Path) -> Run:
    with pytest.raises(Stopped), Run(SETTINGS, folder) as run:
        loop(run, stop_at("after an epoch", epochs - 1))
    return run


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda lines: lines[1:], "epoch 0 in line 1. Found: 1"),
        (lambda lines: [lines[0], lines[2]], "epoch 1 in line 2. Found: 2"),
        (lambda lines: [lines[0], lines[1], lines[1]], "epoch 2 in line 3. Found: 1"),
        (lambda lines: [lines[0], lines[1][:9], lines[2]], 'JSON. Found: {"epoch":'),
        (lambda lines: [*lines[:2], '{"epoch": 2}'], "train_cost in line 3, a number. Found: None"),
        (lambda lines: [*lines[:2], "7"], "JSON. Found: 7"),
        (lambda lines: [*lines[:2], "[" * 100_000], "JSON. Found: [["),
        (lambda lines: [*lines[:2], '{"epoch": 2, "train_cost": true}'], "train_cost in line 3"),
        (
            lambda lines: [
                re.sub('_error": [0-9.]*', f'_error": {10**400}', line) for line in lines
            ],
            "test_error in line 1, a number. Found: 1000",
        ),
        (
            lambda lines: [line.replace('_error": ', '_error": null, "": ') for line in lines],
            "test_error in line 1, a number. Found: None",
        ),
        (lambda lines: lines[:2], "3 epochs or more. Found: 2"),
        (lambda lines: [], "3 epochs or more. Found: 0"),
    ],
)
def test_damaged_metrics_stop_a_run_that_would_go_on(damage, words: str, tmp_path: Path) -> None:
    path = stopped_after(3, tmp_path).folder / "metrics.jsonl"
    path.write_text("".join(line + "\n" for line in damage(path.read_text().splitlines())))
    before = path.read_bytes()
    with pytest.raises(DamagedError, match=re.escape(f"{path} is damaged: expected {words}")):
        run_to_the_end(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("metrics.jsonl", lambda text: text.split("\n", 1)[1], "epoch 0 in line 1"),
        ("metrics.jsonl", lambda text: text.rsplit("\n", 2)[0] + "\n", "5 epochs of a finished"),
        (
            "metrics.jsonl",
            lambda text: text.replace("train_cost", "train_c0st", 1),
            "train_cost in",
        ),
        ("result.json", lambda text: re.sub(r'"test_cost": ', '"test_cost": 1', text), "test_cost"),
        ("result.json", lambda text: text[:30], "JSON"),
        ("result.json", lambda text: "{}", "a score with train_cost"),
        ("config.json", lambda text: text[:30], "the settings of a run"),
    ],
)
def test_a_finished_run_that_is_damaged_has_no_result(
    name: str, damage, words: str, tmp_path: Path
) -> None:
    path = run_to_the_end(tmp_path).folder / name
    path.write_text(damage(path.read_text()))
    with pytest.raises(DamagedError, match=re.escape(f"{path} is damaged: expected {words}")):
        train(SETTINGS, tmp_path)


def spoil(path: Path) -> None:
    path.write_text(path.read_text() + "0")  # still JSON, another number


def test_a_checkpoint_that_is_not_what_was_saved_is_refused(tmp_path: Path) -> None:
    spoil(stopped_after(2, tmp_path).folder / "checkpoint-2")
    with pytest.raises(DamagedError, match=r"checkpoint-2 is damaged: expected the checksum in"):
        run_to_the_end(tmp_path)


def test_a_checkpoint_without_a_checksum_is_refused_unless_the_run_has_ended(
    tmp_path: Path,
) -> None:
    stopped = stopped_after(2, tmp_path / "stopped")
    (stopped.folder / "checkpoint-2.sha256").unlink()
    with pytest.raises(DamagedError, match=r"expected its checksum in checkpoint-2\.sha256"):
        run_to_the_end(tmp_path / "stopped")
    ended = run_to_the_end(tmp_path / "ended")
    (ended.folder / "checkpoint-5.sha256").unlink()
    assert train(SETTINGS, tmp_path / "ended") == ended.result


def test_checksums_are_those_of_sha256sum_and_cover_every_file_of_a_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "deep").mkdir(parents=True)
    (state / "a").write_bytes(b"one")
    (state / "deep" / "b").write_bytes(b"two")
    one, two = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
    assert checksums(state, "x") == f"{one}  x/a\n{two}  x/deep/b\n"
    assert checksums(state / "a", "y") == f"{one}  y\n"


# --- what a start leaves -------------------------------------------------------------------------


def test_a_start_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    beside = tmp_path / "runs/digits-mlp/torch/mine"
    with pytest.raises(Stopped), Run(SETTINGS, tmp_path / "runs"):
        raise Stopped
    assert names(tmp_path) == []
    beside.mkdir(parents=True)
    with pytest.raises(Stopped), Run(SETTINGS, tmp_path / "runs"):
        raise Stopped
    assert names(beside.parent) == ["mine"]
    run = stopped_after(1, tmp_path / "runs")  # this one has something to go on from
    with pytest.raises(Stopped), Run(SETTINGS, tmp_path / "runs"):
        raise Stopped
    assert run.first_epoch == 1


def test_a_missing_framework_is_told_of_with_its_line_before_any_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "optax" else find(name)
    )
    settings = Settings("mnist-mlp", "jax")
    with pytest.raises(ImportError) as caught:
        train(settings, tmp_path / "runs", data=tmp_path / "no such folder")
    assert str(caught.value) == (
        "backend jax: optax not installed. Type: pip install -r examples/requirements-demo.txt"
    )
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "settings",
    [
        Settings("mnist-mlp", "torch"),
        *(Settings("mnist-mlp", "keras", keras_backend=name) for name in KERAS_BACKENDS),
        Settings("mnist-mlp", "jax"),
    ],
    ids=lambda settings: settings.keras_backend or settings.backend,
)
def test_the_line_that_installs_a_backend_names_what_there_is(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError) as caught:
        require_backend(settings)
    command, line = str(caught.value).split(". Type: ")[1].split(" -r ")
    assert command == "pip install"
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    for word in shlex.split(line):
        if word.endswith(".txt"):
            assert (root / word).is_file()
        else:
            assert word.removeprefix(".[").removesuffix("]") in project["optional-dependencies"]


def test_memory_is_kept_unless_the_user_chose() -> None:
    code = "from examples.memory import keep_freed_memory; print(keep_freed_memory())"
    chosen = {name for name in os.environ if name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    plain = {name: value for name, value in os.environ.items() if name not in chosen}
    for more, kept in (({}, platform.libc_ver()[0] == "glibc"), ({"MALLOC_ARENA_MAX": "2"}, False)):
        done = subprocess.run(
            [sys.executable, "-c", code], env=plain | more, cwd=Path(__file__).parents[2],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.strip() == str(kept)


@pytest.mark.parametrize(
    ("environment", "backend", "words"),
    [
        ({"RANK": "1"}, "torch", "RANK: expected not to be set without torchrun"),
        ({"RANK": "0"}, "torch", "RANK: expected not to be set without torchrun"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "torch", "a number below WORLD_SIZE, which is '2'"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, "torch", "a number below WORLD_SIZE, which is '2'"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "jax", "since backend jax knows no torchrun"),
    ],
)
def test_a_rank_without_torchrun_is_an_error(
    environment: dict, backend: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=re.escape(words)):
        train(SETTINGS.but(backend=backend), tmp_path)
    assert names(tmp_path) == []


# --- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["metrics.jsonl", "times.jsonl", "config.json.half", "half-written", "lock", "sparse.npz"],
)
def test_nothing_is_written_through_a_link_in_the_folder(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / SETTINGS.name
    folder.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (folder / name).symlink_to(victim)
    with pytest.raises(ValueError, match=re.escape(f"{folder / name} is a symbolic link")):
        run_to_the_end(tmp_path / "runs")
    assert victim.read_text() == "mine"
    assert names(folder) == [name]


def test_nothing_is_written_through_a_link_that_comes_later(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")

    def link(name: str) -> Stop:
        def swap(place: str, epoch: int) -> None:
            if (place, epoch) == ("in an epoch", 1) and not (run.folder / name).is_symlink():
                (run.folder / name).unlink(missing_ok=True)
                (run.folder / name).symlink_to(victim)

        return swap

    with Run(SETTINGS, tmp_path / "a") as run, pytest.raises(OSError, match="symbolic link"):
        loop(run, link("metrics.jsonl"))
    with Run(SETTINGS, tmp_path / "b") as run:
        loop(run, link("checkpoint-3.sha256.half"))
    with Run(SETTINGS, tmp_path / "c") as run:
        loop(run, link("sparse.npz"))
    assert victim.read_text() == "mine"
    assert run.result is not None


@pytest.mark.parametrize("level", range(4))
def test_no_folder_below_out_may_be_a_link(level: int, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    parts = Path(SETTINGS.name).parts
    link = tmp_path.joinpath("runs", *parts[: level + 1])
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    with pytest.raises(ValueError, match=re.escape(f"{link} is a symbolic link")):
        run_to_the_end(tmp_path / "runs")
    assert names(elsewhere) == []


def test_out_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    assert run_to_the_end(tmp_path / "runs").result is not None


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


def test_other_settings_are_refused_as_well_after_waiting_for_the_lock(tmp_path: Path) -> None:
    other = Run(SETTINGS.but(limit=64), tmp_path)  # when there is nothing in the folder yet
    run = stopped_after(1, tmp_path)
    before = {path: path.read_bytes() for path in run.folder.iterdir() if path.is_file()}
    with pytest.raises(ValueError, match=r"holds a run with limit=128, not 64"), other:
        pass
    assert {path: path.read_bytes() for path in before} == before


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
