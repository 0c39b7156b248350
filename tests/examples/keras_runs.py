"""Runs of the experiments in Keras that are small enough for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from examples.experiments import Schedule
from examples.progress import Watch
from examples.run import Run
from examples.settings import Settings

# Fewer maps than 8 crash oneDNN in torch 2.13.
NARROW = {
    "wrn": {"blocks": 1, "stem": 8, "widths": (8, 16)},
    "language": {"vocabulary": 50, "units": 16, "steps": 10},
    "reviews": {"vocabulary": 100, "embedding": 8, "units": 8},
}


class Costs(Watch):
    """Keeps the cost of every step as it comes, and can break off a run."""

    def __init__(self, stop: int | None = None) -> None:
        self.given: list[Any] = []
        self.stop = stop

    def step(self, epoch: int, step: int, cost: Any) -> None:
        if len(self.given) == self.stop:
            raise KeyboardInterrupt
        self.given.append(cost)

    @property
    def costs(self) -> np.ndarray:
        return np.array([float(cost) for cost in self.given])


def narrow_run(
    name: str, out: Path, data: Path | None, *, watch: Watch | None = None, **settings: Any
) -> Run:
    """A run of an experiment with a narrow model and small batches."""
    run = Run(Settings(name, "keras", **settings), out, data=data, watch=watch)
    plan = run.experiment
    sites = plan.sites[:2] if plan.model == "wrn" else plan.sites
    sizes = plan.sizes | NARROW.get(plan.model, {})
    run.experiment = replace(plan, sizes=sizes, sites=sites, batch=min(plan.batch, 32))
    return run


def rate(run: Run, first: float, schedule: Schedule | None = None) -> None:
    """Let a short run learn at a rate that suits its model."""
    plan = replace(run.experiment.optimiser, rate=first)
    run.experiment = replace(run.experiment, optimiser=plan, schedule=schedule or Schedule())
