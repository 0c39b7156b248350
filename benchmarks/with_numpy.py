"""Drawing in NumPy, which has no backward pass."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import quantal
from benchmarks import layers
from benchmarks.harness import Task, timed
from benchmarks.layers import ALPHA, RATE
from benchmarks.store import Row
from quantal import reference

__all__ = ["measure"]


def measure(task: Task) -> list[Row]:
    """Measure forward passes."""
    rows: list[Row] = []
    law, rng, key = quantal.Dilution(RATE, ALPHA), np.random.default_rng(0), quantal.key(0)

    def dropout(x: NDArray[Any]) -> NDArray[Any]:
        return x * ((rng.random(x.shape, np.float32) < law.retain) * np.float32(1 / law.retain))

    for size in layers.SIZES[:1] if task.quick else layers.SIZES:
        x = np.ones(layers.shape(size), np.float32)
        calls = {
            layers.DROPOUT: lambda x=x: dropout(x),
            layers.QSD: lambda x=x: quantal.dilute(x, RATE, ALPHA, rng=rng),
            layers.KEY: lambda x=x: quantal.dilute(x, RATE, ALPHA, rng=key),
            layers.BETA: lambda x=x: x * reference.draw(law, x.shape, rng).c,
            layers.MULTIPLY: lambda x=x: x * np.float32(1.25),
        }
        what = {"group": "all", "memory": task.memory, "mode": "eager", "dtype": "float32"}
        baselines = dict.fromkeys(calls, layers.DROPOUT)
        rows += timed(what | {"size": size}, calls, baselines, task.rounds(layers.seconds(size)))
    return rows
