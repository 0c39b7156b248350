"""Print the costs of 20 steps of every experiment in one backend: ``python curves.py jax DATA``.

In a process of its own for each backend: frameworks do not share a process well, and Keras reads
its backend from the environment. Float64, QSD, portable keys; the learning rate falls halfway.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from small_runs import Costs

from examples.data import Data, Split
from examples.experiments import EXPERIMENTS, Schedule
from examples.run import Run
from examples.settings import Settings

PAPER = [name for name in EXPERIMENTS if name != "digits-mlp"]
# Narrow models, and data for 10 steps an epoch: samples in a batch, and in all.
NARROW = {
    "wrn": ({"stem": 8, "widths": (8, 12, 16)}, 8, 80),
    "language": ({"vocabulary": 64, "units": 16, "steps": 10}, 20, 2020),
    "reviews": ({"vocabulary": 80, "embedding": 8, "units": 12, "steps": 40}, 12, 120),
    "lenet5": ({}, 16, 160),
    "mlp": ({}, 16, 160),
}


def run(name: str, backend: str, data: Path, out: Path) -> Run:
    """A run of 2 × 10 steps."""
    plan = EXPERIMENTS[name]
    sizes, batch, limit = NARROW[plan.model]
    settings = Settings(
        name, backend, epochs=2, limit=limit, precision="float64", stream="portable", device="cpu"
    )
    made = Run(settings, out, data=data, watch=Costs())
    schedule = Schedule(factor=0.2, steps=(1,))
    # Narrow models have gradients below the paper's bound: with a lower one they are clipped.
    clip = None if plan.optimiser.clip is None else plan.optimiser.clip / 100
    made.experiment = replace(
        plan,
        sizes=plan.sizes | sizes,
        batch=batch,
        schedule=schedule,
        optimiser=replace(plan.optimiser, clip=clip),
    )
    if plan.model == "wrn":
        made._data = fewer_pixels(made.data)
    return made


def fewer_pixels(data: Data) -> Data:
    """Cut images down to 8 × 8 pixels: convolutions in float64 are slow."""
    parts = {"train": data.train, "test": data.test}
    cut = {name: Split(part.x[:, ::4, ::4], part.y) for name, part in parts.items()}
    return replace(data, augment=None, **cut)


def main(backend: str, data: Path) -> None:
    """Train, and print costs and evaluations."""
    train = importlib.import_module(f"examples.with_{backend}.train").train
    found = {}
    with tempfile.TemporaryDirectory() as out:
        for name in PAPER:
            with run(name, backend, data, Path(out)) as one:
                one.finish = lambda *_: None  # type: ignore[method-assign]
                train(one)
            tested = [line["test_cost"] for line in one.metrics]
            found[name] = {"costs": one.watch.costs, "tested": tested}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
