"""The training loop: ``compile`` and one ``fit``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import keras

from examples import initial
from examples.data import Batch
from examples.run import Run
from examples.with_keras import weights
from examples.with_keras.callbacks import Callbacks, Record, Start, checkpoint, start
from examples.with_keras.environment import check, environment
from examples.with_keras.evaluation import reader, site_outputs
from examples.with_keras.models import Model, build
from examples.with_keras.optimisers import optimiser

__all__ = ["check", "prepare", "train"]


def train(run: Run) -> None:
    """Train a run to its end, from where it stands."""
    with environment(run):
        model = prepare(run)
        rates = keras.callbacks.LearningRateScheduler(lambda epoch, _: run.learning_rate(epoch))
        callbacks = [rates, Start(run), Record(run)]
        model.fit(
            batches(run),
            shuffle=False,
            steps_per_epoch=run.steps,
            initial_epoch=run.first_epoch,
            epochs=run.epochs,
            callbacks=Callbacks(run, callbacks, add_history=True, model=model),
            verbose=0,
        )
        tested = reader(model, run, len(next(run.evaluation("test")).x))
        start(tested, run, run.epochs)  # the masks of the measurements depend on nothing before
        run.finish(site_outputs(tested), weights.dump(model, run.experiment))


def prepare(run: Run) -> Model:
    """Return the compiled model, with the weights that it starts from or goes on with."""
    experiment = run.experiment
    model = build(run)
    weights.load(model, initial.weights(experiment, run.settings.seed))
    if experiment.cost == "cross-entropy":
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    else:
        loss = keras.losses.MeanSquaredError()
    metrics = []
    if experiment.error == "error":
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
    moved_by = optimiser(experiment.optimiser, experiment.costs_per_sample)
    model.compile(moved_by, loss, metrics=metrics)
    model.optimizer.build(model.trainable_variables)
    if run.checkpoint is not None:
        model.load_weights(checkpoint(run.checkpoint))
    return model


def batches(run: Run) -> Iterator[Batch]:
    """Yield the training batches of one epoch after another; ``fit`` takes what it needs."""
    for epoch in count(run.first_epoch):
        yield from run.batches(epoch)
