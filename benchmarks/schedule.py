"""What a new law costs a step: a schedule of alpha, or of the rate, beside a law that stays.

In CPU time, since a table is made by one thread that waits for nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import quantal
from benchmarks import layers
from benchmarks.harness import Task
from benchmarks.store import Row

__all__ = ["measure"]

RATES = (0.05, 0.1, 0.2, 0.5)
SHAPE = layers.shape(layers.SMALL)

Change = Callable[[quantal.Dilution], None]
Step = Callable[[], object]


def measure(task: Task) -> list[Row]:
    """Measure in the framework that is the task's subject."""
    change, step = globals()[f"_{task.subject.partition('-')[0]}"]()
    return [
        Row(
            {"framework": task.subject, "rate": rate, "new": new},
            _costs(change, step, laws, 2 if task.quick else 80),
        )
        for rate in (RATES[:1] if task.quick else RATES)
        for new, laws in {
            "alpha": lambda i, rate=rate: quantal.Dilution(rate, 0.2 + i / 1024),
            "rate": lambda i, rate=rate: quantal.Dilution(rate + i / 8192, 0.2),
        }.items()
    ]


def _costs(
    change: Change, step: Step, laws: Callable[[int], quantal.Dilution], steps: int
) -> dict[str, float]:
    """Return the medians of a step whose law stays, and of what a new law adds to it."""
    same, new = [], []
    for i in range(steps + 1):  # the first, which compiles, does not count
        start = time.process_time()
        change(laws(i))
        step()
        changed = time.process_time()
        step()
        same.append(time.process_time() - changed)
        new.append(changed - start - same[-1])
    return {"step": statistics.median(same[1:]), "law": statistics.median(new[1:])}


def _torch() -> tuple[Change, Step]:
    import torch

    from quantal.torch import QSD

    x, layer = torch.ones(SHAPE), QSD(0.5, 1.0)
    return _attribute(layer), lambda: layer(x)


def _keras() -> tuple[Change, Step]:
    import keras

    from quantal.keras import QSD

    x, layer = keras.ops.ones(SHAPE), QSD(0.5, 1.0)
    return _attribute(layer), lambda: keras.ops.convert_to_numpy(layer(x, training=True))


def _jax() -> tuple[Change, Step]:
    import jax
    from flax import nnx

    from quantal.jax import law
    from quantal.jax.nnx import QSD

    x = jax.numpy.ones(SHAPE)
    layer: Any = QSD(law(0.5, 1.0), rngs=nnx.Rngs(0))
    call = nnx.jit(lambda layer: layer(x))

    def change(dilution: quantal.Dilution) -> None:
        layer.rate = law(dilution.rate, dilution.alpha)

    return change, lambda: call(layer).block_until_ready()


def _attribute(layer: Any) -> Change:
    return lambda dilution: setattr(layer, "dilution", dilution)
