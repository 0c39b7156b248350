"""A training step of each experiment's model: with no layer, with dropout, with QSD.

The examples' own models and steps, on data of the right shapes. The cost of a layer is that of its
units, so it grows with the batch as everything else does; the largest models get a smaller one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks import devices
from benchmarks.harness import Task, timed
from benchmarks.store import Row
from examples.data import Batch, Data, Split
from examples.experiments import EXPERIMENTS, Experiment
from examples.run import Run
from examples.settings import Settings

__all__ = ["measure"]

LAYERS = ("none", "dropout", "qsd")
NAMES = tuple(name for name in EXPERIMENTS if name != "digits-mlp")  # which is not the paper's
BATCH = {"cifar10-wrn": 8, "ptb-medium": 10, "ptb-large": 5}

Step = Callable[[], object]


def measure(task: Task) -> list[Row]:
    """Measure in the framework that is the task's subject."""
    rows: list[Row] = []
    framework = task.subject.partition("-")[0]
    for name in NAMES[:1] if task.quick else NAMES:
        with TemporaryDirectory() as folder, ExitStack() as stack:
            steps = {}
            for layer in LAYERS:
                run = Run(Settings(name, framework, layer, device=task.device), Path(folder))
                run.experiment = _calm(run.experiment)
                run._data = _data(run.experiment)
                steps[layer] = stack.enter_context(_FRAMEWORKS[framework](run))
            what = {"framework": task.subject, "experiment": name, "size": run.experiment.batch}
            baselines = dict.fromkeys(LAYERS, "dropout")
            # Several at a time, as in training: after another model the caches are cold.
            rounds = task.rounds(12, least=0.03, warm_up=1)
            rows += timed(what, steps, baselines, rounds)
    return rows


def _calm(plan: Experiment) -> Experiment:
    """Return an experiment that learns next to nothing, as its data are noise."""
    optimiser = replace(plan.optimiser, rate=1e-6)
    return replace(plan, optimiser=optimiser, batch=BATCH.get(plan.name, plan.batch))


def _data(plan: Experiment) -> Data:
    """Return one batch."""
    rng, n, sizes = np.random.default_rng(0), plan.batch, plan.sizes
    if plan.data in ("mnist", "cifar10"):
        shape = (28, 28, 1) if plan.data == "mnist" else (32, 32, 3)
        images = rng.standard_normal((n, *shape), np.float32)
        part = Split(images, rng.integers(sizes["classes"], size=n, dtype=np.int32))
    elif plan.data == "ptb":
        words = n * (sizes["steps"] + 1)
        part = Split(rng.integers(sizes["vocabulary"], size=words, dtype=np.int32))
    else:
        words = rng.integers(sizes["vocabulary"], size=(n, sizes["steps"]), dtype=np.int32)
        part = Split(words, rng.standard_normal(n, np.float32))
    return Data(part, part)


def _batch(run: Run) -> Batch:
    return next(iter(run.batches(0)))


@contextmanager
def _torch(run: Run) -> Iterator[Step]:
    from examples.with_torch.parallel import team
    from examples.with_torch.train import Training

    with team(run) as us:
        training = Training(run, us)
        training.model.train()
        x, y = map(training.tensor, _batch(run))
        state: Any = None
        _, wait = devices.on_torch(run.settings.device)

        def step() -> None:
            nonlocal state
            _, state = training.step(x, y, state)
            wait()

        yield step


@contextmanager
def _jax(run: Run) -> Iterator[Step]:
    import jax

    from examples.with_jax.devices import at_work
    from examples.with_jax.train import Trainer

    with at_work(run) as place:
        trainer = Trainer(run, place)
        state, keys, rate = trainer.begin(trainer.start(), 0)
        (portion,) = trainer.feed.portions([_batch(run)])
        arguments = (portion.batches, portion.samples, np.int32(1), keys, rate)

        def step() -> None:
            nonlocal state
            state, _ = jax.block_until_ready(trainer.steps.train(state, *arguments))

        yield step


@contextmanager
def _keras(run: Run) -> Iterator[Step]:
    import keras

    from examples.with_keras.environment import environment
    from examples.with_keras.train import prepare

    with environment(run):
        model = prepare(run)
        x, y = map(keras.ops.convert_to_tensor, _batch(run))
        # What comes back are numbers, so it has waited.
        yield lambda: model.train_on_batch(x, y)


_FRAMEWORKS = {"torch": _torch, "jax": _jax, "keras": _keras}
