"""Small runs for the tests of the Keras examples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from examples.progress import Watch
from examples.run import Run
from examples.settings import Settings

NARROW = {
    "wrn": {"blocks": 1, "stem": 8, "widths": (8, 16, 24)},
    "language": {"vocabulary": 50, "units": 16, "steps": 10},
    "reviews": {"vocabulary": 100, "embedding": 8, "units": 8, "steps": 30},
}


class Costs(Watch):
    """Collects the costs of the steps, and can break off a run."""

    def __init__(self, stop: int | None = None) -> None:
        self.costs: list[Any] = []
        self.stop = stop

    def step(self, epoch: int, step: int, cost: Any) -> None:
        if len(self.costs) == self.stop:
            raise KeyboardInterrupt
        self.costs.append(cost)


def narrow(
    name: str, out: Path, data: Path | None, *, watch: Watch | None = None, **settings: Any
) -> Run:
    """Return a run of an experiment with a narrow model and small batches."""
    run = Run(Settings(name, "keras", **settings), out, data=data, watch=watch)
    plan = run.experiment
    sizes = plan.sizes | NARROW.get(plan.model, {})
    sites = plan.sites
    if plan.model == "wrn":
        sites = sites[::2]
    run.experiment = replace(plan, sizes=sizes, sites=sites, batch=min(plan.batch, 32))
    return run
