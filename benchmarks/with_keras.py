"""Layers in Keras, on the backend of KERAS_BACKEND."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import quantal
from benchmarks import devices, layers
from benchmarks.harness import Task
from benchmarks.layers import ALPHA, RATE, Candidate
from benchmarks.store import Row
from quantal.keras import QSD, SpatialQSD2D

__all__ = ["Keras", "Masked", "beta", "measure", "two_gammas"]

BACKEND = keras.backend.backend()


def two_gammas(shape: Any, law: quantal.Dilution, seed: Any) -> Any:
    """Draw p by the paper's listing, from two gammas."""
    a = keras.random.gamma(shape, law.alpha, seed=seed)
    return a / (a + keras.random.gamma(shape, law.beta, seed=seed))


def beta(shape: Any, law: quantal.Dilution, seed: Any) -> Any:
    """Draw p by Keras's Beta sampler."""
    return keras.random.beta(shape, law.alpha, law.beta, seed=seed)


class Masked(keras.layers.Layer):
    """The rest of the paper's listing: a mask and a size for p, which ``draw`` gives."""

    def __init__(self, draw: Callable[..., Any], law: quantal.Dilution) -> None:
        super().__init__()
        self.draw, self.law = draw, law
        self.seed_generator = keras.random.SeedGenerator(1)
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        """Draw p, then a mask."""
        p = self.draw(x.shape, self.law, self.seed_generator)
        mask = keras.random.uniform(x.shape, seed=self.seed_generator) < p
        return x * keras.ops.stop_gradient(p * keras.ops.cast(mask, p.dtype) / self.law.retain**2)


class Multiply(keras.layers.Layer):
    """What is left when there is nothing to draw."""

    def __init__(self) -> None:
        super().__init__()
        self.built = True

    def call(self, x: Any, training: bool = False) -> Any:
        """Multiply by a number."""
        return x * 1.25


class Keras:
    """Keras as its backend runs it by default, and in its other ways."""

    modes = {
        "tensorflow": ("graph", "eager", "XLA"),
        "jax": ("compiled", "eager"),
        "torch": ("eager", "compiled"),
    }[BACKEND]
    usual = 1
    # float64 is another mode of JAX as a whole.
    dtypes = ("bfloat16", "float16", "float64")[: 2 if BACKEND == "jax" else 3]
    largest_slow = layers.LARGE if BACKEND == "jax" else 2**24

    def __init__(self, device: str = "cpu") -> None:
        self.wait = _DEVICES[BACKEND](device)

    def dropout(self, seed: Any = 1) -> Any:
        """Return Keras's own layer."""
        return keras.layers.Dropout(RATE, seed=seed)

    def qsd(self, seed: Any = 1, **options: Any) -> Any:
        """Return the layer in its place."""
        return QSD(RATE, ALPHA, seed=seed, **options)

    def candidates(self, mode: str) -> list[Candidate]:
        """Return the layers, each with a seed generator of its own."""
        law = quantal.Dilution(RATE, ALPHA)
        maps: dict[str, Any] = {"seed": 1, "data_format": "channels_first"}
        own_maps = keras.layers.SpatialDropout2D(RATE, **maps)
        found = [
            Candidate(layers.DROPOUT, self.dropout()),
            Candidate(layers.QSD, self.qsd()),
            Candidate(layers.KEY, self.qsd(quantal.key(1))),
            Candidate(layers.SHARED_C, self.qsd(broadcast_dims=0)),
            Candidate(layers.SHARED_P, self.qsd(p_broadcast_dims=0)),
            Candidate(layers.OWN_MAPS, own_maps, layers.OWN_MAPS, maps=True),
            Candidate(layers.MAPS, SpatialQSD2D(RATE, ALPHA, **maps), layers.OWN_MAPS, maps=True),
            Candidate(layers.MULTIPLY, Multiply()),
        ]
        if BACKEND == "torch":
            # Without a seed, Keras calls torch's dropout, and QSD draws from torch's stream.
            name = "own dropout, no seed"
            found.append(Candidate(name, self.dropout(None), name))
            found.append(Candidate("QSD, no seed", self.qsd(None), name))
        if mode == self.modes[0]:
            found.append(Candidate(layers.GAMMAS, Masked(two_gammas, law), layers.QSD, slow=True))
            found.append(Candidate(layers.BETA, Masked(beta, law), layers.QSD, slow=True))
        return found

    def step(
        self, layer: Any, shape: tuple[int, ...], dtype: str, mode: str
    ) -> Callable[[], object]:
        """Return a forward and backward pass that waits for its results."""
        layer.dtype_policy = keras.dtype_policies.DTypePolicy(dtype)
        draw = np.random.default_rng(0).standard_normal
        x, upstream = (keras.ops.cast(draw(shape, np.float32), dtype) for _ in range(2))
        call = _STEPS[BACKEND](layer, x, upstream, mode)

        def waiting() -> None:
            call()
            self.wait()

        return waiting


def _tensorflow(layer: Any, x: Any, upstream: Any, mode: str) -> Callable[[], object]:
    import tensorflow as tf

    def run(x: Any, upstream: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True)
        return y, tape.gradient(y, x, upstream)

    if mode != "eager":
        run = tf.function(run, autograph=False, jit_compile=mode == "XLA")
    return lambda: run(x, upstream)


def _jax(layer: Any, x: Any, upstream: Any, mode: str) -> Callable[[], object]:
    import jax

    def run(state: Any, x: Any, upstream: Any) -> Any:
        y, pull, state = jax.vjp(
            lambda x: layer.stateless_call([], state, x, training=True), x, has_aux=True
        )
        return y, pull(upstream), state

    state = [variable.value for variable in layer.non_trainable_variables]
    if mode == "compiled":
        run = jax.jit(run).lower(state, x, upstream).compile()

    def call() -> None:
        nonlocal state
        y, gradient, state = run(state, x, upstream)
        jax.block_until_ready((y, gradient))

    return call


def _torch(layer: Any, x: Any, upstream: Any, mode: str) -> Callable[[], object]:
    x = x.detach().requires_grad_()

    forward = _graph(layer) if mode == "compiled" else functools.partial(layer, training=True)

    def call() -> None:
        forward(x).backward(upstream)
        x.grad = None

    return call


@functools.cache  # one for all sizes
def _graph(layer: Any) -> Callable[[Any], Any]:
    import torch

    torch._dynamo.config.recompile_limit = 64  # to it, each layer has its own code in Keras
    return torch.compile(lambda x: layer(x, training=True), dynamic=True)


_DEVICES: dict[str, Callable[[str], Any]] = {
    "tensorflow": devices.on_tensorflow,
    "jax": devices.on_jax,
    "torch": lambda kind: devices.on_torch(kind)[1],
}
_STEPS: dict[str, Callable[..., Callable[[], object]]] = {
    "tensorflow": _tensorflow,
    "jax": _jax,
    "torch": _torch,
}


def measure(task: Task) -> list[Row]:
    """Measure the cost of layers."""
    return layers.measure(Keras(task.device), task)
