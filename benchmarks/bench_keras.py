"""Keras on the backend of KERAS_BACKEND: QSD against dropout, forward and backward.

KERAS_BACKEND=jax python benchmarks/bench_keras.py
"""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import math
from collections.abc import Callable
from typing import Any

import harness
import keras
import numpy as np

import quantal
from quantal.keras import QSD

BACKEND = keras.backend.backend()
RATE, ALPHA = 0.2, 0.2
SHAPES = [(1024, 4096), (64, 256)]
RECIPE = "the paper's recipe"


class Recipe(keras.layers.Layer):
    """The paper's recipe: p from two gammas, a mask, a size."""

    def __init__(self) -> None:
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(1)
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:  # noqa: D102
        law, shape, seed = quantal.Dilution(RATE, ALPHA), x.shape, self.seed_generator
        one = keras.random.gamma(shape, law.alpha, seed=seed)
        p = one / (one + keras.random.gamma(shape, law.beta, seed=seed) + 1e-37)
        mask = keras.random.uniform(shape, seed=seed) < p
        return x * keras.ops.cast(mask, x.dtype) * p / law.retain**2


def steps(shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    x, upstream = (np.random.default_rng(n).normal(size=shape).astype("float32") for n in (1, 2))
    calls = {
        "keras.layers.Dropout": _layer(keras.layers.Dropout(RATE, seed=1)),
        "QSD": _layer(QSD(RATE, ALPHA, seed=1)),
        "QSD, portable key": _layer(QSD(RATE, ALPHA, seed=quantal.key(1))),
        "QSD, alpha=inf": _layer(QSD(RATE, math.inf, seed=1)),
        RECIPE: _layer(Recipe()),
        "x * 1.25": (None, lambda x: x * 1.25),
    }
    if BACKEND == "tensorflow":
        import tensorflow as tf

        calls["tf.nn.dropout"] = (None, lambda x: tf.nn.dropout(x, RATE))
    if BACKEND == "torch":
        # Without a seed, Keras calls torch's dropout, and QSD draws from torch's stream.
        calls["keras.layers.Dropout, no seed"] = _layer(keras.layers.Dropout(RATE))
        calls["QSD, no seed"] = _layer(QSD(RATE, ALPHA))
    make = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[BACKEND]
    return {name: make(*call, x, upstream) for name, call in calls.items()}


def _layer(layer: Any) -> tuple[Any, Callable[[Any], Any]]:
    return layer, lambda x: layer(x, training=True)


def _tensorflow(layer: Any, call: Any, x: Any, upstream: Any) -> Callable[[], object]:
    import tensorflow as tf

    x, upstream = tf.constant(x), tf.constant(upstream)

    @tf.function(autograph=False)
    def step(x: Any, upstream: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = call(x)
        return y, tape.gradient(y, x, upstream)

    return lambda: step(x, upstream)


def _jax(layer: Any, call: Any, x: Any, upstream: Any) -> Callable[[], object]:
    import jax

    @jax.jit
    def step(state: Any, x: Any, upstream: Any) -> Any:
        def apply(x: Any) -> Any:
            return layer.stateless_call([], state, x, training=True) if layer else (call(x), state)

        y, pull, state = jax.vjp(apply, x, has_aux=True)
        return y, pull(upstream), state

    x, upstream = jax.device_put(x), jax.device_put(upstream)
    state = [v.value for v in layer.non_trainable_variables] if layer else []

    def run() -> None:
        nonlocal state
        y, gradient, state = step(state, x, upstream)
        jax.block_until_ready((y, gradient))

    return run


def _torch(layer: Any, call: Any, x: Any, upstream: Any) -> Callable[[], object]:
    import torch

    x, upstream = torch.from_numpy(x).requires_grad_(), torch.from_numpy(upstream)

    def run() -> None:
        x.grad = None
        call(x).backward(upstream)

    return run


if __name__ == "__main__":
    harness.keep_memory()
    print(f"Keras {keras.__version__} on {BACKEND}: forward and backward, float32\n")
    for shape in SHAPES:
        candidates, size = steps(shape), math.prod(shape)
        recipe = candidates.pop(RECIPE)  # so slow that it is timed apart, in few rounds
        rounds = 21 if size > 1e6 else 51
        timings = harness.compare(candidates, "keras.layers.Dropout", rounds=rounds)
        print(harness.table(f"{shape[0]} × {shape[1]}", timings, size))
        slow = {"QSD": candidates["QSD"], RECIPE: recipe}
        ratio = harness.compare(slow, "QSD", rounds=3, warm_up=1)[RECIPE].ratio
        print(f"The paper's recipe takes {ratio:.0f} times as long as QSD.\n")
