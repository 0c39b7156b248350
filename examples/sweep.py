"""Grids of conditions and seeds, on this machine or on a cluster; what is done is skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from queue import SimpleQueue

from examples.experiments import experiment
from examples.settings import Settings

__all__ = ["Job", "grid", "jobs", "on_this_machine", "paper", "pending"]

Outcome = tuple["Job", str]  # the error, empty if there was none
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Job:
    """Runs that one process does: one, or the seeds of a condition trained together."""

    runs: tuple[Settings, ...]

    @property
    def name(self) -> str:
        """What it does."""
        first = self.runs[0].name
        return first if len(self.runs) == 1 else f"{first} … {self.runs[-1].seed}"

    def command(self, out: Path, data: Path | None) -> list[str]:
        """Return the command line that does it."""
        one = self.runs[0]
        line = [sys.executable, "-m", "examples", "run", one.experiment, "--out", str(out)]
        for name in _OPTIONS:
            value = getattr(one, name)
            flag = "--" + name.replace("_", "-")
            if isinstance(value, bool):
                line += [flag] * value
            elif value is not None:
                line += [flag, str(value)]
        line += ["--seed", *(str(run.seed) for run in self.runs)]
        line += [] if data is None else ["--data", str(data)]
        return line + (["--vmap-seeds"] if len(self.runs) > 1 else [])


_OPTIONS = (
    *("backend", "layer", "rate", "alpha", "epochs"),
    *("limit", "precision", "device", "stream", "devices"),
    *("unit_mean", "shared_p", "variant", "keras_backend"),
)


def grid(
    start: Settings,
    *,
    layers: Sequence[str],
    rates: Sequence[float | None],
    alphas: Sequence[float | None],
    seeds: Sequence[int],
) -> list[Settings]:
    """Return every combination once; a layer without a parameter does not multiply.

    Examples
    --------
    >>> start = Settings("mnist-mlp", "torch")
    >>> found = grid(start, layers=["dropout", "qsd"], rates=[0.2], alphas=[0.2, 1.0], seeds=[0])
    >>> [run.condition for run in found]
    ['dropout-0.2', 'qsd-0.2-0.2', 'qsd-0.2-1']
    """
    conditions = {}
    for layer, rate, alpha in product(layers, rates, alphas):
        rate = None if layer == "none" else rate
        alpha = None if layer in ("none", "dropout") else alpha
        one = start.but(
            layer=layer,
            rate=rate,
            alpha=alpha,
            unit_mean=start.unit_mean and layer == "qsd",
            shared_p=start.shared_p and layer not in ("none", "dropout"),
        )
        conditions[one.condition] = one
    return [one.but(seed=seed) for one in conditions.values() for seed in seeds]


def paper(start: Settings, seeds: Sequence[int]) -> list[Settings]:
    """Return all runs of the paper's figures for an experiment: findings, rates and alphas."""
    plan = experiment(start.experiment)
    seeds = list(seeds)
    figures = grid(
        start,
        layers=["dropout", "qsd"],
        rates=plan.rates or [plan.rate],
        alphas=plan.alphas or [plan.alpha],
        seeds=seeds,
    )
    tables = [
        start.but(layer=found.layer, rate=found.rate, alpha=found.alpha, seed=seed)
        for found in plan.findings
        for seed in seeds
    ]
    return list({run.name: run for run in figures + tables}.values())


def pending(runs: Iterable[Settings], out: Path) -> list[Settings]:
    """Leave out the runs that have come to their end."""
    return [run for run in runs if not (out / run.name / "result.json").exists()]


def jobs(runs: Iterable[Settings], *, vmap_seeds: bool = False) -> list[Job]:
    """Make one job of each run, or of all seeds of a condition."""
    if not vmap_seeds:
        return [Job((run,)) for run in runs]
    grouped = groupby(sorted(runs, key=_key), key=lambda run: _key(run)[:-1])
    return [Job(tuple(group)) for _, group in grouped]


def _key(run: Settings) -> tuple[str, str, int]:
    return run.experiment, f"{run.backend} {run.condition}", run.seed


def on_this_machine(
    work: Sequence[Job],
    out: Path,
    data: Path | None,
    *,
    at_once: int,
    threads: int | None = None,
    gpus: int = 0,
    retries: int = 1,
) -> Iterator[Outcome]:
    """Do the jobs in processes of their own, and yield each as it ends.

    Each writes what it says to ``log.txt`` in its folder. ``threads`` are those of one process;
    None shares out the cores. With ``gpus``, each process sees one of them.
    """
    free: SimpleQueue[int] = SimpleQueue()
    for number in range(at_once):
        free.put(number)
    threads = threads or max(1, (os.cpu_count() or 1) // at_once)

    def do(job: Job) -> Outcome:
        place = free.get()
        try:
            environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = str(place % gpus)
            return job, _attempt(job, out, data, environment, retries)
        finally:
            free.put(place)

    with ThreadPoolExecutor(at_once) as pool:
        for ended in as_completed([pool.submit(do, job) for job in work]):
            yield ended.result()


def _attempt(
    job: Job, out: Path, data: Path | None, environment: dict[str, str], retries: int
) -> str:
    """Do a job, again if it fails, each time from its last checkpoint; return the last error."""
    folder = out / job.runs[0].name
    folder.mkdir(parents=True, exist_ok=True)
    error = ""
    for _ in range(retries + 1):
        with (folder / "log.txt").open("ab") as log:
            ended = subprocess.run(
                job.command(out, data), cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        if ended.returncode == 0:
            return ""
        tail = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
        error = f"exit {ended.returncode}: {' '.join(tail)} ({folder / 'log.txt'})"
    return error
