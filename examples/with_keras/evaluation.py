"""Costs of a part of the data, and what the sites put out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from math import nan
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from examples.data import Batch
from examples.run import Run
from examples.with_keras.models import Model, build, measured, reset_state

__all__ = ["evaluate", "reader", "site_outputs"]


def reader(model: Model, run: Run, places: int) -> Model:
    """Return a model that reads so many samples at once, with the weights of another.

    Most read any number. A language model has a state for each place of the text: one that reads
    the text in fewer places is made anew, since it is compiled for them.
    """
    if run.experiment.model != "language" or places == run.experiment.batch:
        return model
    made = build(run, places)
    for own, other in zip(made.trainable_variables, model.trainable_variables, strict=True):
        # A copy: on JAX, ``evaluate`` gives the memory of its variables away and takes it back.
        own.assign(keras.ops.copy(other))
    made.compile(loss=model.loss)
    return made


def evaluate(model: Model, run: Run, part: str) -> tuple[float, float]:
    """Return the mean cost of a part of the data and the share of wrong answers."""
    batches = list(run.evaluation(part))
    model = reader(model, run, len(batches[0].x))
    # One ``evaluate`` for each shape: of all its batches Keras makes what it makes of the first.
    groups = [list(group) for _, group in groupby(batches, key=lambda batch: batch.x.shape)]
    reset_state(model)
    found = [_evaluate(model, group) for group in groups]
    counts = [sum(batch.y.size for batch in group) for group in groups]
    cost, wrong = np.average(found, axis=0, weights=counts)
    return float(cost), float(wrong)


def _evaluate(model: keras.Model, batches: list[Batch]) -> tuple[float, float]:
    def once() -> Iterator[Batch]:
        yield from batches

    found = model.evaluate(once(), steps=len(batches), verbose=0, return_dict=True)
    return found["loss"], 1 - found.get("accuracy", nan)


class Pass(keras.Model):
    """A model as it is in training or in evaluation, whichever ``predict`` would choose.

    ``predict`` is compiled: otherwise JAX compiles the loop of an LSTM again for every batch.
    """

    def __init__(self, model: keras.Model, training: bool) -> None:
        super().__init__()
        self.model, self.training = model, training

    def call(self, x: Any) -> Any:
        return self.model(x, training=self.training)


def site_outputs(
    model: keras.Model,
) -> Callable[[Iterable[NDArray], bool], Iterator[list[NDArray]]]:
    """Return the function from inputs, and whether masks are on, to the outputs of the sites."""
    # Frozen, they use their running statistics whether masks are on or not.
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
    inner = keras.Model(model.input, [place.output for place in measured(model)])
    passes = {masks: Pass(inner, masks) for masks in (False, True)}

    def outputs(inputs: Iterable[NDArray], masks: bool) -> Iterator[list[NDArray]]:
        reset_state(model)
        for batch in inputs:
            yield [np.asarray(y, np.float32) for y in passes[masks].predict_on_batch(batch)]

    return outputs
