"""Costs of a part of the data, and what the sites put out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import nan

import keras
import numpy as np
from numpy.typing import NDArray

from examples.data import Batch
from examples.run import Run
from examples.with_keras.models import reset_state, sites

__all__ = ["evaluate", "site_outputs"]


def evaluate(model: keras.Model, run: Run, part: str) -> tuple[float, float]:
    """Return the mean cost of a part of the data and the share of wrong answers."""
    batches = list(run.evaluation(part))
    # Of one ``evaluate`` Keras gives all batches to the devices as it gives the first.
    whole = [batch for batch in batches if len(batch.x) % run.settings.devices == 0]
    rest = [batch for batch in batches if len(batch.x) % run.settings.devices]
    found = [_evaluate(model, some) for some in (whole, rest) if some]
    counts = [sum(len(batch.x) for batch in some) for some in (whole, rest) if some]
    cost, wrong = np.average(found, axis=0, weights=counts)
    return float(cost), float(wrong)


def _evaluate(model: keras.Model, batches: list[Batch]) -> tuple[float, float]:
    def once() -> Iterator[Batch]:
        yield from batches

    reset_state(model)
    found = model.evaluate(once(), steps=len(batches), verbose=0, return_dict=True)
    return found["loss"], 1 - found.get("accuracy", nan)


def site_outputs(model: keras.Model) -> Callable[[NDArray, bool], list[NDArray]]:
    """Return the function from inputs, and whether masks are on, to the outputs of the sites."""
    # Frozen, they use their running statistics whether masks are on or not.
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
    inner = keras.Model(model.input, [site.output for site in sites(model)])

    def outputs(x: NDArray, masks: bool) -> list[NDArray]:
        reset_state(model)
        found = inner(x, training=masks)
        return [keras.ops.convert_to_numpy(keras.ops.cast(y, "float32")) for y in found]

    return outputs
