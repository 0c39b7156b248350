"""Runs that nobody trained, written as real ones are: by `Run`."""

from __future__ import annotations

from math import nan
from unittest import mock
from zlib import crc32

import numpy as np

from examples.data import Data, Split
from examples.run import Run
from examples.settings import Settings

LOWER = {"none": 1.3, "dropout": 1.0, "qsd": 0.85, "dist-p": 0.98, "dist-q": 1.02}
LEVEL = {"ptb": 4.4, "reviews": 0.7}  # the last cost, with dropout; of images 0.07


def write(settings: Settings, out, *, end: float | None = None, epochs: int | None = None) -> Run:
    """Write a run whose test cost falls to ``end``, NaN for one that diverges.

    With ``epochs``, it is stopped after so many.
    """
    run = Run(settings, out)
    run._data = _data(settings)
    rng = np.random.default_rng([settings.seed, crc32(settings.condition.encode())])
    lower = LOWER[settings.layer] * min(settings.alpha or 1, 5) ** 0.02
    if end is None:
        end = LEVEL.get(run.experiment.data, 0.07) * lower * rng.normal(1, 0.02)
    # Nobody waits for the disk here.
    with mock.patch("examples.files.os.fsync"), run:
        for epoch in range(run.epochs if epochs is None else epochs):
            fall = 0.3 if run.experiment.data == "reviews" else end if end < 1 else 1.5
            cost = end + 3 * fall * np.exp(-6 * (epoch + 1) / run.epochs) * rng.normal(1, 0.1)
            wrong = nan if settings.plan.error != "error" else cost / 4
            tested = dict.fromkeys(run.parts, (cost, wrong))
            run.record(epoch, cost * 0.8, tested, lambda path: path.write_text("state"))
        if epochs is None:
            run.finish(_outputs(run, lower, rng), _weights(rng))
    return run


def grid(experiment: str, layers, out, *, seeds=3, backend="torch", **common) -> None:
    """Write runs for each of some layers, given as (layer, rate, alpha), and each seed."""
    for layer, rate, alpha in layers:
        for seed in range(seeds):
            condition = Settings(experiment, backend, layer, rate, alpha, seed)
            write(condition.but(**common), out)


def _data(settings: Settings) -> Data:
    rng = np.random.default_rng(0)
    if settings.plan.data == "ptb":
        part = Split(rng.integers(50, size=1500).astype(np.int32))
        return Data(part, part, part)
    if settings.plan.data == "reviews":
        part = Split(rng.integers(50, size=(60, 6)).astype(np.int32), np.zeros(60, np.float32))
        return Data(part, part, scale=0.18)
    part = Split(rng.random((60, 4, 4, 1), np.float32), np.zeros(60, np.int32))
    return Data(part, part)


def _outputs(run: Run, lower: float, rng: np.random.Generator):
    def outputs(x, masks):
        shape = (len(x), 5) if run.experiment.data == "ptb" else (len(x),)
        drawn = [
            np.maximum(rng.normal(lower - 0.8, 0.3 * lower, (*shape, 30 * site)), 0)
            for site in range(1, len(run.experiment.measured) + 1)
        ]
        return [values * (rng.random(values.shape) > 0.2) for values in drawn] if masks else drawn

    return lambda inputs, masks: (outputs(x, masks) for x in inputs)


def _weights(rng: np.random.Generator) -> dict[str, np.ndarray]:
    arrays = {}
    for number in (1, 2, 3):
        arrays[f"dense{number}/kernel"] = rng.normal(0, 0.05, (40, 40))
        arrays[f"dense{number}/bias"] = rng.normal(0, 0.02, 40)
    return arrays
