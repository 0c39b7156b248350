"""Sweeps: what a grid holds, what is skipped, what happens to runs that fail or are killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from examples import sweep
from examples.__main__ import main
from examples.experiments import experiment
from examples.settings import Settings

ROOT = Path(__file__).parents[2]
START = Settings("digits-mlp", "torch", epochs=2)


def names(runs):
    return [run.name for run in runs]


def test_a_layer_without_a_parameter_does_not_multiply():
    runs = sweep.grid(
        START, layers=["none", "dropout", "qsd"], rates=[0.1, 0.2], alphas=[0.2, 1.0], seeds=[0, 1]
    )
    assert len(runs) == len(set(names(runs))) == 2 * (1 + 2 + 4)


def test_the_paper_s_grid_holds_its_findings_and_figures():
    plan = experiment("mnist-mlp")
    runs = sweep.paper(Settings("mnist-mlp", "torch"), range(8))
    found = {(run.layer, run.rate, run.alpha) for run in runs}
    assert {(f.layer, f.rate, f.alpha) for f in plan.findings} <= found
    assert {("qsd", rate, alpha) for rate in plan.rates for alpha in plan.alphas} <= found
    assert len(runs) == len(set(names(runs))) == 8 * len(found)


def test_a_job_s_command_makes_the_same_settings(monkeypatch):
    run = Settings("mnist-mlp", "jax", layer="dist-q", rate=0.3, alpha=0.7, seed=5, limit=640)
    made = []
    monkeypatch.setattr("examples.run.train", lambda settings, *_, **__: made.append(settings))
    assert main(sweep.Job((run,)).command(Path("out"), Path("data"))[3:]) == 0
    assert made == [run]


def test_seeds_of_a_condition_go_together():
    runs = sweep.grid(START, layers=["dropout", "qsd"], rates=[None], alphas=[None], seeds=range(3))
    work = sweep.jobs(runs, vmap_seeds=True)
    assert [[run.seed for run in job.runs] for job in work] == [[0, 1, 2]] * 2
    assert "--vmap-seeds" in work[0].command(Path("out"), None)


def test_finished_runs_are_skipped(tmp_path):
    runs = sweep.grid(START, layers=["qsd"], rates=[None], alphas=[None], seeds=range(3))
    done = tmp_path / runs[1].name
    done.mkdir(parents=True)
    (done / "result.json").write_text("{}")
    assert names(sweep.pending(runs, tmp_path)) == names([runs[0], runs[2]])


def test_a_sweep_of_real_processes(tmp_path, capfd):
    line = ["sweep", "digits-mlp", "--seeds", "2", "--epochs", "2", "--jobs", "2"]
    line += ["--out", str(tmp_path)]
    assert main(line) == 0
    found = sorted(path.parent for path in tmp_path.rglob("result.json"))
    assert len(found) == 4
    before = [path.stat().st_mtime_ns for path in found]
    assert main(line) == 0
    assert "4 of them done; 0 jobs" in capfd.readouterr().out
    assert [path.stat().st_mtime_ns for path in found] == before


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path, capfd):
    bad = tmp_path / Settings("digits-mlp", "torch", layer="dropout").name
    bad.mkdir(parents=True)
    START.but(layer="dropout", epochs=7).write(bad / "config.json")  # a run with other settings
    line = ["sweep", "digits-mlp", "--seeds", "1", "--epochs", "1", "--retries", "0"]
    assert main([*line, "--out", str(tmp_path)]) == 1
    out = capfd.readouterr().out
    assert "epochs=7" in out
    assert len(list(tmp_path.rglob("result.json"))) == 1


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.05)


def epochs_done(folder):
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_a_killed_run_of_a_sweep_is_tried_again_to_the_same_numbers(tmp_path):
    run = Settings("digits-mlp", "torch", epochs=12)
    line = [
        sys.executable,
        "-m",
        "examples",
        "sweep",
        "digits-mlp",
        "--layer",
        "qsd",
        "--seeds",
        "1",
    ]
    line += ["--epochs", "12", "--retries", "1", "--out"]
    subprocess.run([*line, str(tmp_path / "whole")], cwd=ROOT, check=True)
    folder = tmp_path / "killed" / run.name
    process = subprocess.Popen([*line, str(tmp_path / "killed")], cwd=ROOT)
    wait_for(lambda: epochs_done(folder) >= 3)
    [child] = [
        int(pid)
        for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    ] or [pid for pid in children(process.pid)]
    os.kill(child, signal.SIGKILL)
    assert process.wait(300) == 0
    metrics = [tmp_path / name / run.name / "metrics.jsonl" for name in ("whole", "killed")]
    assert metrics[0].read_text() == metrics[1].read_text()


def children(pid):
    """Return the processes that any thread of a process has started."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


@pytest.mark.filterwarnings("ignore")  # Ray 2.60 and what it imports: many, none of them ours
def test_a_ray_cluster_loses_a_worker_in_mid_run(tmp_path):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    line = [
        sys.executable,
        "-m",
        "examples",
        "sweep",
        "digits-mlp",
        "--layer",
        "qsd",
        "--seeds",
        "2",
    ]
    line += ["--epochs", "30", "--retries", "3"]
    try:
        out = tmp_path / "ray"
        process = subprocess.Popen(
            [*line, "--engine", "ray", "--address", cluster.address, "--out", str(out)], cwd=ROOT
        )
        runs = [Settings("digits-mlp", "torch", epochs=30, seed=seed) for seed in range(2)]
        wait_for(lambda: all(epochs_done(out / run.name) >= 2 for run in runs))
        cluster.remove_node(nodes[0], allow_graceful=False)
        assert process.wait(300) == 0
    finally:
        cluster.shutdown()
    subprocess.run([*line, "--out", str(tmp_path / "here")], cwd=ROOT, check=True)
    for run in runs:
        there, here = (json_lines(tmp_path / name / run.name) for name in ("ray", "here"))
        assert there == here
        assert len(there) == 30


def json_lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
