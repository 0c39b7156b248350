"""A language model of 203 weights, by hand in NumPy: its first update, and how it reads a text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from examples import initial
from examples.data import Data, Split
from examples.run import Run
from examples.settings import Settings

Weights = dict[str, NDArray]
STEPS, BATCH = 4, 2


def tiny_run(backend: str, out: Path, clip: float, **settings: Any) -> Run:
    """One epoch of one step, without a layer, in float64; the test text has a last, short window."""
    given = {"layer": "none", "epochs": 1, "precision": "float64", "device": "cpu"} | settings
    run = Run(Settings("ptb-medium", backend, **given), out)
    plan = run.experiment
    run.experiment = replace(
        plan,
        sizes={"vocabulary": 5, "units": 3, "layers": 2, "steps": STEPS},
        batch=BATCH,
        optimiser=replace(plan.optimiser, clip=clip),
    )
    words = np.random.default_rng(0).integers(5, size=27).astype(np.int32)
    run._data = Data(Split(words[: BATCH * (STEPS + 1)]), Split(words), Split(words))
    return run


def outputs(weights: Weights, words: NDArray) -> NDArray:
    """What leaves the second LSTM, for each place and word, from a state of zero."""
    x = weights["embedding"][words]
    for layer in ("rnn1", "rnn2"):
        h = c = np.zeros((len(words), x.shape[-1]))
        after = []
        for now in x.swapaxes(0, 1):
            gates = now @ weights[f"{layer}/kernel"] + h @ weights[f"{layer}/recurrent"]
            i, f, g, o = np.split(gates + weights[f"{layer}/bias"], 4, axis=1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
            h = _sigmoid(o) * np.tanh(c)
            after.append(h)
        x = np.stack(after, axis=1)
    return x


def costs(weights: Weights, words: NDArray) -> NDArray:
    """The cost of each word but the first, given those before it."""
    logits = outputs(weights, words[:, :-1]) @ weights["dense/kernel"] + weights["dense/bias"]
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, words[:, 1:, None], axis=-1)[..., 0]


def first_update(run: Run, rate: float = 1.0) -> Weights:
    """The weights after one step: the gradient of the sum over time, by differences, clipped."""
    start = initial.weights(run.experiment, run.settings.seed)
    words = run.data.train.x.reshape(BATCH, STEPS + 1)

    def cost(weights: Weights) -> float:
        return float(costs(weights, words).sum(axis=1).mean())

    gradient = {name: _differences(cost, start, name) for name in start}
    norm = np.sqrt(sum(np.square(part).sum() for part in gradient.values()))
    scale = min(1.0, run.experiment.optimiser.clip / norm)
    return {name: start[name] - rate * scale * gradient[name] for name in start}


def check(run: Run, train: Callable[[Run], None]) -> None:
    """A backend's first update is the one by hand, and it reads the test text as one stream."""
    found: dict[str, Any] = {}

    def finish(site_outputs: Any, weights: Weights) -> None:
        found["weights"] = weights
        windows = [batch.x for batch in run.evaluation("test")]
        found["outputs"] = [sites[-1] for sites in site_outputs(iter(windows), False)]

    run.finish = finish  # type: ignore[method-assign]
    with run:
        train(run)
    weights = found["weights"]
    for name, expected in first_update(run).items():
        # torch's bound of a gradient is lower by 1e-6 of its norm.
        np.testing.assert_allclose(weights[name], expected, rtol=1e-5, atol=1e-8, err_msg=name)
    text = run.data.test.x[None]
    tested = costs(weights, text).mean()
    np.testing.assert_allclose(run.metrics[0]["test_cost"], tested, rtol=1e-6)
    np.testing.assert_allclose(
        np.concatenate(found["outputs"], axis=1), outputs(weights, text[:, :-1]), rtol=1e-6
    )


def _sigmoid(x: NDArray) -> NDArray:
    return 1 / (1 + np.exp(-x))


def _differences(cost: Callable[[Weights], float], weights: Weights, name: str) -> NDArray:
    found = np.zeros_like(weights[name])
    for place in np.ndindex(found.shape):
        step = np.zeros_like(found)
        step[place] = 1e-4
        above, below = (cost(weights | {name: weights[name] + s}) for s in (step, -step))
        found[place] = (above - below) / 2e-4
    return found
