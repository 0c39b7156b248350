"""Sweeps: what a grid holds, what is skipped, what happens to runs that fail or are killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from synthetic import write

from examples import processes, sweep
from examples.__main__ import main
from examples.experiments import experiment
from examples.run import train
from examples.settings import Settings

ROOT = Path(__file__).parents[2]
START = Settings("digits-mlp", "torch", epochs=2)
LONG = START.but(epochs=24)  # long enough to be met under way


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
    rates = [rate for rate in plan.rates if rate]
    assert {("qsd", rate, alpha) for rate in rates for alpha in plan.alphas} <= found
    assert len(runs) == len(set(names(runs))) == 8 * len(found)


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-lenet5"])
def test_the_paper_s_rate_0_is_trained_once(name):
    runs = sweep.paper(Settings(name, "torch"), range(2))
    nothing = [run for run in runs if run.dilution is None or not run.dilution.rate]
    assert 0 in experiment(name).rates
    assert [(run.layer, run.seed) for run in nothing] == [("none", 0), ("none", 1)]


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


def test_a_run_is_done_if_its_folder_holds_that_very_run(tmp_path):
    runs = sweep.grid(START, layers=["qsd"], rates=[None], alphas=[None], seeds=range(8))
    (tmp_path / runs[7].name / "config.json").mkdir(parents=True)
    for run in runs[:5]:
        write(run, tmp_path)
    write(runs[1].but(epochs=1), tmp_path / "other").folder.rename(tmp_path / "swap")
    changed, cut, torn = (tmp_path / runs[n].name for n in (1, 2, 3))
    changed.rename(tmp_path / "old")
    (tmp_path / "swap").rename(changed)
    lines = (cut / "metrics.jsonl").read_text().splitlines(keepends=True)
    (cut / "metrics.jsonl").write_text(lines[0])
    (torn / "result.json").write_text("{}")
    (tmp_path / runs[4].name / "result.json").unlink()  # under way
    found = sweep.standing(runs, tmp_path)
    assert names(found.done) == names([runs[0]])
    assert names(found.left) == names(runs[4:7])
    assert [*found.refused] == names([*runs[1:4], runs[7]])
    words = ["epochs=1, not 2", "2 epochs of a finished run. Found: 1", "a score with", "directory"]
    for said, expected in zip(found.refused.values(), words, strict=True):
        assert expected in said


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (["--retries", "-1"], "retries: expected at least 0. Received: retries=-1"),
        (["--jobs", "0"], "jobs: expected at least 1. Received: jobs=0"),
        (["--seeds", "0"], "seeds: expected at least 1. Received: seeds=0"),
        (["--threads", "0"], "threads: expected at least 1. Received: threads=0"),
        (["--gpus", "-1"], "gpus: expected at least 0. Received: gpus=-1.0"),
        (["--gpus", "0.5"], "gpus: expected a whole number"),
    ],
)
def test_a_count_that_makes_no_sense_is_an_error(option, words, tmp_path, capsys):
    assert main(["sweep", "digits-mlp", "--out", str(tmp_path), *option]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def sweep_line(out, epochs, *more):
    line = ["sweep", "digits-mlp", "--layer", "qsd", "--epochs", str(epochs), "--out", str(out)]
    return [*line, *more]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The metrics of unbroken runs of two seeds; on one thread: sums depend on their number."""
    out, threads = tmp_path_factory.mktemp("unbroken"), torch.get_num_threads()
    runs = [LONG.but(seed=seed) for seed in range(2)]
    torch.set_num_threads(1)
    for run in runs:
        train(run, out)
    torch.set_num_threads(threads)
    return [metrics(out / run.name) for run in runs]


def metrics(folder):
    path = folder / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(condition, seconds=900):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.02)


def test_a_sweep_of_real_processes_and_a_second_one_with_nothing_to_do(tmp_path, capfd):
    bad = tmp_path / START.but(seed=1).name
    bad.mkdir(parents=True)
    START.but(seed=1, epochs=7).write(
        bad / "config.json"
    )  # a run with other settings is in the way
    line = sweep_line(tmp_path, 2, "--seeds", "2", "--jobs", "2", "--retries", "0")
    assert main(line) == 1
    said = capfd.readouterr().out
    assert said.startswith("2 runs, 0 of them done; 1 jobs\n")
    assert "not begun: " in said
    assert "epochs=7" in said
    [result] = tmp_path.rglob("result.json")
    assert result.parent == tmp_path / START.name
    before = result.stat().st_mtime_ns
    assert main(sweep_line(tmp_path, 2, "--seeds", "1")) == 0
    assert "1 of them done; 0 jobs" in capfd.readouterr().out
    assert result.stat().st_mtime_ns == before


def test_a_killed_run_of_a_sweep_is_tried_again_to_the_same_numbers(tmp_path, unbroken):
    folder = tmp_path / LONG.name
    line = sweep_line(tmp_path, LONG.epochs, "--seeds", "1", "--threads", "1")
    process = subprocess.Popen([sys.executable, "-m", "examples", *line], cwd=ROOT)
    wait_for(lambda: len(metrics(folder)) >= 2)
    [child] = children(process.pid)
    os.kill(child, signal.SIGKILL)
    assert len(metrics(folder)) < LONG.epochs
    assert process.wait(900) == 0
    assert "going on after epoch" in folder.with_name("seed-0.log").read_text()
    assert metrics(folder) == unbroken[0]


def begun(folder, epochs):
    """A sweep of one run, in a process of its own, once it is well under way."""
    line = sweep_line(folder, epochs, "--seeds", "1", "--threads", "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "examples", *line],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(
            signal.SIGINT, signal.SIG_DFL
        ),  # these tests may ignore it
    )
    run = folder / START.name
    wait_for(lambda: len(metrics(run)) >= 2)
    assert len(metrics(run)) < epochs
    [child] = children(process.pid)
    return process, child


def is_there(pid):
    """Whether a process runs, and does not wait for its parent to ask after it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_processes_of_a_sweep_that_is_killed_end_with_it(tmp_path):
    process, child = begun(tmp_path, 20)
    process.kill()
    process.communicate()
    # At once, before the orphan has noticed.
    line = sweep_line(tmp_path, 20, "--seeds", "1", "--threads", "1", "--retries", "0")
    assert main(line) == 0
    assert not is_there(child)
    assert len(metrics(tmp_path / START.name)) == 20


def test_ctrl_c_ends_a_sweep_and_its_processes_and_begins_no_others(tmp_path):
    process, child = begun(tmp_path, 4000)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=900)
    assert process.returncode == 130
    assert said == "stopped; the same command goes on from here\n"
    assert not is_there(child)
    log = (tmp_path / START.name).with_name("seed-0.log").read_text()
    assert log.count("epochs of") == 1  # it was not tried again


def test_a_start_that_fails_leaves_its_log_and_no_folder(tmp_path, capfd):
    line = sweep_line(tmp_path, 2, "--seeds", "1", "--device", "gpu", "--retries", "0")
    assert main(line) == 1
    said = capfd.readouterr().out
    assert "failed: exit 2: error: device: expected auto or cpu, since torch finds no GPU" in said
    [left] = (path for path in tmp_path.rglob("*") if path.is_file())
    assert left == (tmp_path / START.name).with_name("seed-0.log")
    assert str(left) in said
    assert not (tmp_path / START.name).exists()


def children(pid):
    """Return the processes that any thread of a process has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.filterwarnings("ignore")  # Ray 2.60 and what it imports: many, none of them ours
def test_a_ray_cluster_loses_a_worker_in_mid_run(tmp_path, unbroken):
    # Longer than 20 seconds: a cluster of three nodes, a driver, and three workers with torch.
    from ray.cluster_utils import Cluster

    folders = [tmp_path / LONG.but(seed=seed).name for seed in range(2)]
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        lost = cluster.add_node(num_cpus=1)
        line = sweep_line(tmp_path, LONG.epochs, "--seeds", "2", "--retries", "3")
        line += ["--engine", "ray", "--address", cluster.address]
        process = subprocess.Popen([sys.executable, "-m", "examples", *line], cwd=ROOT)
        wait_for(lambda: any(map(metrics, folders)))
        cluster.remove_node(lost, allow_graceful=False)
        done = [len(metrics(folder)) for folder in folders]
        assert sum(done) < LONG.epochs  # one is under way, and the other waits
        cluster.add_node(num_cpus=1)
        assert process.wait(900) == 0
    finally:
        cluster.shutdown()
    assert [metrics(folder) for folder in folders] == unbroken


def test_what_the_paper_left_open_is_passed_on():
    start = Settings("mnist-mlp", "torch", unit_mean=True, shared_p=True)
    runs = sweep.grid(
        start, layers=["dropout", "qsd", "dist-p"], rates=[None], alphas=[None], seeds=[0]
    )
    conditions = ["dropout-0.2", "qsd-0.2-0.2-unit-mean-shared-p", "dist-p-0.2-0.2-shared-p"]
    assert [run.condition for run in runs] == conditions
    command = sweep.Job((runs[1],)).command(Path("runs"), None)
    assert {"--unit-mean", "--shared-p"} <= set(command)
    assert not {"--unit-mean", "--shared-p"} & set(sweep.Job((runs[0],)).command(Path("out"), None))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux alone pins processes")
def test_each_process_has_cores_of_its_own(monkeypatch, tmp_path):
    whole = os.sched_getaffinity(0)
    both = threading.Barrier(2)

    def attempt(*_):
        both.wait(30)  # each in its place
        return " ".join(map(str, os.sched_getaffinity(0)))

    def given(cores):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: cores)
        found = processes._cores(2, 1)
        monkeypatch.undo()
        return found

    assert given({3, 5, 8}) == [{3}, {5}]
    assert given({3}) == []  # too few: none is pinned
    if len(whole) < 2:
        pytest.skip("one core")
    monkeypatch.setattr(processes, "_attempt", attempt)
    work = [sweep.Job((START.but(seed=seed),)) for seed in (0, 1)]
    ended = processes.on_this_machine(work, tmp_path, None, at_once=2, threads=1)
    assert sorted(cores for _, cores in ended) == sorted(map(str, sorted(whole)[:2]))
    assert os.sched_getaffinity(0) == whole
