"""Grids of conditions and seeds, on this machine or on a cluster; what is done is skipped."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path

from examples.folder import read_result, refuse_other_settings
from examples.settings import Settings

__all__ = ["Job", "Standing", "grid", "jobs", "paper", "standing"]

Outcome = tuple["Job", str]  # the error, empty if there was none
ROOT = Path(__file__).parents[1]
# Seconds that the process of a sweep that was killed, or of a worker that was lost, may live on in
# its run's folder.
PATIENCE = 60.0


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
        line += ["--patience", str(PATIENCE)]
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
    """Return all runs of the paper's figures for an experiment: findings, rates and alphas.

    At rate 0 every layer is the identity: there is one condition for it, without a layer.
    """
    plan = start.plan
    rates = [rate for rate in plan.rates or (plan.rate,) if rate]
    seeds, alphas = list(seeds), plan.alphas or [plan.alpha]
    found = grid(start, layers=["none"], rates=[None], alphas=[None], seeds=seeds)
    found += grid(start, layers=["dropout", "qsd"], rates=rates, alphas=alphas, seeds=seeds)
    found += [
        start.but(layer=finding.layer, rate=finding.rate, alpha=finding.alpha, seed=seed)
        for finding in plan.findings
        for seed in seeds
    ]
    return list({run.name: run for run in found}.values())


@dataclass(frozen=True)
class Standing:
    """Which runs are still to do, which have been done, and which cannot be, with the reasons."""

    left: list[Settings]
    done: list[Settings]
    refused: dict[str, str]


def standing(runs: Iterable[Settings], out: Path) -> Standing:
    """Look which runs have come to their end, by what their folders hold."""
    found = Standing([], [], {})
    for run in runs:
        folder = out / run.name
        try:
            refuse_other_settings(folder, run)
            ended = read_result(folder, run.plan.epochs if run.epochs is None else run.epochs)
        except (ValueError, OSError) as error:
            found.refused[run.name] = str(error)
        else:
            (found.left if ended is None else found.done).append(run)
    return found


def jobs(runs: Iterable[Settings], *, vmap_seeds: bool = False) -> list[Job]:
    """Make one job of each run, or of all seeds of a condition."""
    if not vmap_seeds:
        return [Job((run,)) for run in runs]
    grouped = groupby(sorted(runs, key=_key), key=lambda run: _key(run)[:-1])
    return [Job(tuple(group)) for _, group in grouped]


def _key(run: Settings) -> tuple[str, str, int]:
    return run.experiment, f"{run.backend} {run.condition}", run.seed
