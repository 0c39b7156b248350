"""The weights that a run starts with: the same for one seed in every condition and backend.

They have one layout, which each backend turns into its own: names as below; dense kernels
(inputs, outputs); convolution kernels (height, width, inputs, outputs); recurrent layers with
kernel (inputs, gates · units), recurrent (units, gates · units) and the gates in the order
i, f, g, o (LSTM: one bias, (4 · units,)) or r, z, n (GRU, reset after the product: two biases,
(2, 3 · units), for the input and the recurrence). The first dense kernel after a convolution has
its rows in the order height, width, channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray

from examples.experiments import Experiment

__all__ = ["shapes", "weights"]

# The half-width of the uniform law that all weights of the language models start from (cited).
_HALF_WIDTH = {650: 0.05, 1300: 0.04}


def shapes(experiment: Experiment) -> dict[str, tuple[int, ...]]:
    """Return the shape of every trainable array.

    Examples
    --------
    >>> from examples.experiments import experiment
    >>> shapes(experiment("digits-mlp"))["dense1/kernel"]
    (64, 128)
    """
    return dict(_SHAPES[experiment.model](experiment.sizes))


def weights(experiment: Experiment, seed: int) -> dict[str, NDArray[np.float64]]:
    """Draw all trainable arrays from a seed."""
    rng = np.random.default_rng([seed, 0])
    return {name: _draw(experiment, name, shape, rng) for name, shape in shapes(experiment).items()}


def _draw(
    experiment: Experiment, name: str, shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[np.float64]:
    part = name.rsplit("/", 1)[-1]
    if experiment.start == "uniform":
        half = _HALF_WIDTH.get(experiment.sizes["units"], 0.05)
        return rng.uniform(-half, half, shape)
    if part == "scale":
        return np.ones(shape)
    if part == "bias":
        bias = np.zeros(shape)
        if experiment.sizes.get("cell") == "lstm" and name.startswith("rnn"):
            units = experiment.sizes["units"]
            bias[units : 2 * units] = 1  # the forget gate starts open (cited)
        return bias
    if part == "embedding":
        return rng.uniform(-0.05, 0.05, shape)
    if part == "recurrent":
        units = shape[0]
        blocks = [_orthogonal(units, rng) for _ in range(shape[1] // units)]
        return np.concatenate(blocks, axis=1)
    fan_in, fan_out = prod(shape[:-1]), shape[-1]
    if experiment.start == "glorot":
        half = sqrt(6 / (fan_in + fan_out))
        return rng.uniform(-half, half, shape)
    return rng.normal(0, sqrt(2 / fan_in), shape)


def _orthogonal(size: int, rng: np.random.Generator) -> NDArray[np.float64]:
    q, r = np.linalg.qr(rng.normal(size=(size, size)))
    return np.asarray(q * np.sign(np.diag(r)))


Shapes = Iterator[tuple[str, tuple[int, ...]]]


def _dense(name: str, inputs: int, outputs: int) -> Shapes:
    yield f"{name}/kernel", (inputs, outputs)
    yield f"{name}/bias", (outputs,)


def _mlp(sizes: dict) -> Shapes:
    widths = (sizes["inputs"], *sizes["hidden"], sizes["classes"])
    for number, (inputs, outputs) in enumerate(pairwise(widths), 1):
        yield from _dense(f"dense{number}", inputs, outputs)


def _lenet5(sizes: dict) -> Shapes:
    size, channels = 32, 1
    for number, maps in enumerate(sizes["maps"], 1):
        yield f"conv{number}/kernel", (sizes["kernel"], sizes["kernel"], channels, maps)
        yield f"conv{number}/bias", (maps,)
        size, channels = (size - sizes["kernel"] + 1) // 2, maps
    widths = (size * size * channels, *sizes["dense"], sizes["classes"])
    for number, (inputs, outputs) in enumerate(pairwise(widths), 1):
        yield from _dense(f"dense{number}", inputs, outputs)


def _norm(name: str, channels: int) -> Shapes:
    yield f"{name}/scale", (channels,)
    yield f"{name}/bias", (channels,)


def _wrn(sizes: dict) -> Shapes:
    channels = sizes["stem"]
    yield "stem/kernel", (3, 3, 3, channels)
    for group, width in enumerate(sizes["widths"], 1):
        for block in range(1, sizes["blocks"] + 1):
            name = f"group{group}/block{block}"
            yield from _norm(f"{name}/norm1", channels)
            yield f"{name}/conv1/kernel", (3, 3, channels, width)
            yield from _norm(f"{name}/norm2", width)
            yield f"{name}/conv2/kernel", (3, 3, width, width)
            if channels != width:
                yield f"{name}/shortcut/kernel", (1, 1, channels, width)
            channels = width
    yield from _norm("norm", channels)
    yield from _dense("dense", channels, sizes["classes"])


def _recurrent(name: str, cell: str, inputs: int, units: int) -> Shapes:
    gates = {"lstm": 4, "gru": 3}[cell]
    yield f"{name}/kernel", (inputs, gates * units)
    yield f"{name}/recurrent", (units, gates * units)
    yield f"{name}/bias", (4 * units,) if cell == "lstm" else (2, 3 * units)


def _language(sizes: dict) -> Shapes:
    yield "embedding", (sizes["vocabulary"], sizes["units"])
    for number in range(1, sizes["layers"] + 1):
        yield from _recurrent(f"rnn{number}", "lstm", sizes["units"], sizes["units"])
    yield from _dense("dense", sizes["units"], sizes["vocabulary"])


def _reviews(sizes: dict) -> Shapes:
    yield "embedding", (sizes["vocabulary"], sizes["embedding"])
    yield from _recurrent("rnn", sizes["cell"], sizes["embedding"], sizes["units"])
    yield from _dense("dense", sizes["units"], 1)


_SHAPES = {
    "mlp": _mlp,
    "lenet5": _lenet5,
    "wrn": _wrn,
    "language": _language,
    "reviews": _reviews,
}
