"""What a run asks of ``fit``: its streams, its steps, its records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras

from examples.run import Run
from examples.with_keras.evaluation import evaluate
from examples.with_keras.models import reset_state, sites

__all__ = ["Callbacks", "Record", "Start", "checkpoint", "start"]


class Start(keras.callbacks.Callback):
    """Starts each epoch in a state that depends on nothing but its number."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: D102
        start(self.model, self.run, epoch)


def start(model: keras.Model, run: Run, epoch: int) -> None:
    """Set the streams of masks, and the state that is carried, to those of an epoch's start."""
    reset_state(model)
    for number, site in enumerate(sites(model)):
        if generator := getattr(site, "seed_generator", None):
            # The seed of the site, and the number of its first call.
            if run.settings.stream == "portable":
                generator.state.assign([0, epoch * run.steps])
            else:
                generator.state.assign([run.stream_seed(epoch), number * run.steps])


class Record(keras.callbacks.Callback):
    """Ends each epoch with an evaluation and a checkpoint."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:  # noqa: D102
        evaluated = {part: evaluate(self.model, self.run, part) for part in self.run.parts}
        self.run.record(epoch, logs["loss"], evaluated, self._save)

    def _save(self, path: Path) -> None:
        path.mkdir()
        self.model.save_weights(checkpoint(path))


def checkpoint(path: Path) -> Path:
    """Return the file of model and optimiser in the folder of a checkpoint."""
    return path / "model.weights.h5"


class Callbacks(keras.callbacks.CallbackList):
    """Callbacks that tell a run of each step.

    Keras's own list would turn what a step gives into numbers first, and wait for the device.
    """

    def __init__(self, run: Run, callbacks: list[keras.callbacks.Callback], **kwargs: Any) -> None:
        super().__init__(callbacks, **kwargs)
        self.run, self.epoch = run, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: D102
        self.epoch = epoch
        super().on_epoch_begin(epoch, logs)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: D102
        self.run.step(self.epoch, batch, logs["latest"])
