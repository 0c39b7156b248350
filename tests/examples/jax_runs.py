"""Runs in JAX that are small enough for tests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from small_runs import Costs, constant_rate, narrow

from examples.data import Data, Split
from examples.run import Run
from examples.settings import Settings
from examples.with_jax.train import train

__all__ = ["small", "small_run", "trained"]


def small_run(name: str, out: Path, data: Path | None = None, **options: Any) -> Run:
    """A run of a narrow model, on a CPU, that keeps its costs."""
    settings = Settings(name, "jax", **{"device": "cpu", "epochs": 2} | options)
    run = Run(settings, out, data=data, watch=Costs())
    run.experiment = small(narrow(name))
    run._data = fewer_pixels(run.data) if run.experiment.model == "wrn" else run.data
    if name.startswith("reviews"):
        constant_rate(run, 0.02)
    return run


def small(narrow: Any) -> Any:
    """The same with shorter texts and smaller batches: more steps of less work."""
    if narrow.model == "language":
        return replace(narrow, sizes=narrow.sizes | {"units": 64, "steps": 10})
    if narrow.model == "wrn":  # half as many blocks: less to compile
        sizes = narrow.sizes | {"blocks": 1}
        return replace(narrow, sizes=sizes, sites=narrow.sites[:3], batch=32)
    return replace(narrow, batch={"reviews": 64}.get(narrow.model, narrow.batch))


def fewer_pixels(data: Data, apart: int = 4) -> Data:
    """Pixels so far apart only: XLA's convolutions on a CPU are slow, above all in float64."""
    parts = {"train": data.train, "test": data.test}
    cut = {name: Split(part.x[:, ::apart, ::apart], part.y) for name, part in parts.items()}
    return replace(data, augment=None, **cut)


def trained(run: Run) -> Run:
    """The run, at its end."""
    with run:
        train(run)
    return run
