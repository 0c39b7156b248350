"""Runs of the experiments that are small enough for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from examples import sparse
from examples.experiments import Experiment, Schedule, experiment
from examples.progress import Watch
from examples.run import Run
from examples.settings import Settings

NARROW = {
    "wrn": {"stem": 4, "widths": (8, 12, 16)},
    "language": {"vocabulary": 64, "units": 16},
    "reviews": {"vocabulary": 80, "embedding": 8, "units": 16},
}


class Costs(Watch):
    """Keeps the cost of every step."""

    def __init__(self) -> None:
        self.costs: list[float] = []

    def step(self, epoch: int, step: int, cost: Any) -> None:
        self.costs.append(float(cost))


def narrow(name: str, variant: str | None = None) -> Experiment:
    """An experiment with a narrower model where the paper's takes long."""
    whole = experiment(name, variant)
    return replace(whole, sizes=whole.sizes | NARROW.get(whole.model, {}))


def narrow_run(name: str, out: Path, data: Path | None = None, **options: Any) -> Run:
    """A run of it, on a CPU, that keeps its costs."""
    rank = options.pop("rank", 0)
    settings = Settings(name, "torch", **{"device": "cpu"} | options)
    run = Run(settings, out, data=data, watch=Costs(), rank=rank)
    run.experiment = narrow(name, settings.variant)
    return run


def constant_rate(run: Run, rate: float) -> None:
    """Let a short run learn at a rate that suits its model."""
    plan = replace(run.experiment.optimiser, rate=rate)
    run.experiment = replace(run.experiment, optimiser=plan, schedule=Schedule())


def same_measurements(one: Run, other: Run) -> None:
    """Two runs have measured the same, masks and all."""
    found, expected = sparse.load(one.folder), sparse.load(other.folder)
    assert found.keys() == expected.keys()
    assert not np.array_equal(expected["masks-on/1/units"], expected["masks-off/1/units"])
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)
