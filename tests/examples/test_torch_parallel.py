"""Two processes that torchrun starts, on gloo: the costs of one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

if __name__ == "__main__":  # where pytest does not prepare the path
    sys.path.insert(0, str(Path(__file__).parent))

from small_runs import Costs, narrow, narrow_run

from examples.run import Run
from examples.with_torch import weights
from examples.with_torch.models import build
from examples.with_torch.parallel import Team, team
from examples.with_torch.train import train

ROOT = Path(__file__).parents[2]
RANKS = 2
# With each, something that must span the processes: maps, a carried state and clipping, words.
NAMES = ("digits-mlp", "mnist-lenet5", "ptb-medium", "reviews-gru")


def small_run(name: str, out: Path, data: Path, **options: Any) -> Run:
    defaults: dict[str, Any] = {"epochs": 2, "precision": "float64", "stream": "portable"}
    if name == "digits-mlp":
        defaults["limit"] = 400
    run = narrow_run(name, out, data, **defaults | options)
    plan = run.experiment.optimiser
    if plan.clip is not None:  # so tight that it matters
        plan = replace(plan, clip=0.05)
    run.experiment = replace(run.experiment, batch=20, optimiser=plan)
    return run


def go(run: Run) -> list[float]:
    with run:
        train(run)
    return getattr(run.watch, "costs", [])


class Crash(Costs):
    def step(self, epoch: int, step: int, cost: Any) -> None:
        if epoch == 1:
            raise RuntimeError("crash")


def worker(out: Path, data: Path) -> None:
    """Train in one of the processes, and write what the tests compare."""
    rank, first = int(os.environ["RANK"]), not (out / "rank0.json").exists()

    def shared(name: str, place: str, **options: Any) -> Run:
        return small_run(name, out / place, data, devices=RANKS, rank=rank, **options)

    if first:
        found = {name: go(shared(name, "portable")) for name in NAMES}
        go(shared("digits-mlp", "native", stream="native"))
        (out / f"rank{rank}.json").write_text(json.dumps(found))
    broken = shared("digits-mlp", "broken", stream="native")
    if first and rank == 0:
        broken.watch = Crash()
    go(broken)
    assert broken.result is not None  # for each process, once it is through


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Path:
    """The folder of the runs that two processes share: one crashes, then goes on."""
    out = tmp_path_factory.mktemp("shared")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={RANKS}", __file__, str(out), str(data_folder)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    for crash in (True, False):
        done = subprocess.run(
            command, env=environment, timeout=300, capture_output=True, text=True, check=False
        )
        assert (done.returncode != 0) == crash, done.stderr
        assert ("RuntimeError: crash" in done.stderr) == crash, done.stderr
    return out


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_have_the_costs_of_one(
    name: str, shared: Path, tmp_path: Path, data_folder: Path
) -> None:
    alone = small_run(name, tmp_path, data_folder)
    expected = go(alone)
    found, others = (json.loads((shared / f"rank{rank}.json").read_text()) for rank in range(RANKS))
    assert len(expected) == 2 * alone.steps
    np.testing.assert_allclose(found[name], expected, rtol=1e-10)
    assert others[name] == []  # only the first tells
    together = small_run(name, shared / "portable", data_folder)
    for one, two in zip(alone.metrics, together.metrics, strict=True):
        assert one == pytest.approx(two, rel=1e-10)


def test_processes_go_on_after_a_crash(shared: Path, data_folder: Path) -> None:
    whole, broken = (
        small_run("digits-mlp", shared / place, data_folder, stream="native")
        for place in ("native", "broken")
    )
    assert len(whole.metrics) == 2
    assert broken.metrics == whole.metrics
    assert broken.result == whole.result


def test_each_process_has_its_rows_and_its_stream(tmp_path: Path) -> None:
    batch = np.arange(12).reshape(6, 2)
    rows = [Team(torch.device("cpu"), rank, 3).rows(batch) for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate(rows), batch)
    seeds = [narrow_run("digits-mlp", tmp_path, rank=rank).stream_seed(0) for rank in range(3)]
    assert len(set(seeds)) == 3


def test_only_the_first_process_writes(tmp_path: Path) -> None:
    run = narrow_run("digits-mlp", tmp_path, rank=1, epochs=1, limit=64)
    go(run)
    assert not list(tmp_path.iterdir())


def test_batch_norm_sees_the_whole_batch_or_is_refused(tmp_path: Path) -> None:
    experiment = narrow("cifar10-wrn")
    model = build(experiment, [nn.Identity() for _ in experiment.sites])
    with pytest.raises(ValueError, match="devices: expected 1 on a CPU for a model with BatchNorm"):
        Team(torch.device("cpu"), 0, 2).normalised(model)
    before = weights.dump(model)
    model = Team(torch.device("cuda", 0), 0, 2).normalised(model)
    kinds = {type(module) for module in model.modules()}
    assert nn.SyncBatchNorm in kinds
    assert nn.BatchNorm2d not in kinds
    after = weights.dump(model)
    assert before.keys() == after.keys()


@pytest.mark.parametrize(
    ("size", "devices", "expected"),
    [
        (None, 2, r"1 without torchrun \(type: torchrun --nproc-per-node 2 -m examples run"),
        ("4", 2, "4, the number of processes that torchrun started"),
        ("3", 3, "a divisor of the batch, 64"),
    ],
)
def test_devices_are_processes(
    size: str | None,
    devices: int,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if size is not None:
        monkeypatch.setenv("WORLD_SIZE", size)
    run = narrow_run("digits-mlp", tmp_path, devices=devices)
    with pytest.raises(ValueError, match=f"devices: expected {expected}"), team(run):
        pass


if __name__ == "__main__":
    worker(Path(sys.argv[1]), Path(sys.argv[2]))
