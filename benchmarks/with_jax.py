"""Layers in JAX: Flax NNX, Flax Linen and Equinox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from flax import linen as nn
from flax import nnx
from jax import numpy as jnp

import quantal
import quantal.jax.equinox
import quantal.jax.linen
import quantal.jax.nnx
from benchmarks import devices, layers
from benchmarks.harness import Task
from benchmarks.layers import ALPHA, RATE, Candidate
from benchmarks.store import Row

__all__ = ["Jax", "beta", "measure", "two_gammas"]

Layer = Callable[[jax.Array, jax.Array], jax.Array]


def two_gammas(x: jax.Array, key: jax.Array, law: quantal.Dilution) -> jax.Array:
    """Dilute by the paper's listing: p = a/(a + b) of two gamma draws, a mask, a size."""
    first, second, third = jax.random.split(key, 3)
    a = jax.random.gamma(first, law.alpha, x.shape)
    b = jax.random.gamma(second, law.beta, x.shape)
    return _masked(x, a / (a + b), third, law)


def beta(x: jax.Array, key: jax.Array, law: quantal.Dilution) -> jax.Array:
    """Dilute with p from JAX's Beta sampler."""
    first, second = jax.random.split(key)
    return _masked(x, jax.random.beta(first, law.alpha, law.beta, x.shape), second, law)


def _masked(x: jax.Array, p: jax.Array, key: jax.Array, law: quantal.Dilution) -> jax.Array:
    mask = jax.random.uniform(key, x.shape) < p
    return x * jax.lax.stop_gradient(p * mask / law.retain**2)


class Jax:
    """One compiled program for a pass; eager, a program for each operation."""

    modes = ("compiled", "eager")
    usual = 1
    dtypes = ("bfloat16", "float16")  # float64 needs another mode of JAX as a whole
    largest_slow = layers.LARGE  # beyond it a call takes more than a minute

    def __init__(self, device: str = "cpu") -> None:
        devices.on_jax(device)

    def dropout(self, **options: Any) -> Layer:
        """Return Flax's own layer."""
        return _nnx(nnx.Dropout(RATE, **options))

    def qsd(self, **options: Any) -> Layer:
        """Return the layer in its place."""
        return _nnx(quantal.jax.nnx.QSD(RATE, ALPHA, **options))

    def candidates(self, mode: str) -> list[Candidate]:
        """Return the layers, the key being an argument, as in training."""
        law, portable = quantal.Dilution(RATE, ALPHA), quantal.key(0)
        maps = {"broadcast_dims": (2, 3)}
        found = [
            Candidate(layers.DROPOUT, self.dropout()),
            Candidate(layers.QSD, self.qsd()),
            Candidate(layers.KEY, lambda x, _: quantal.dilute(x, RATE, ALPHA, rng=portable)),
            Candidate(layers.SHARED_C, self.qsd(broadcast_dims=(0,))),
            Candidate(layers.SHARED_P, self.qsd(p_broadcast_dims=(0,))),
            Candidate(layers.OWN_MAPS, self.dropout(**maps), layers.OWN_MAPS, maps=True),
            Candidate(layers.MAPS, self.qsd(**maps), layers.OWN_MAPS, maps=True),
            Candidate(layers.MULTIPLY, lambda x, _: x * jnp.asarray(1.25, x.dtype)),
        ]
        if mode == "eager":
            return found
        linen, equinox = "linen: own dropout", "equinox: own dropout"
        return [
            *found,
            Candidate(linen, _linen(nn.Dropout(RATE)), linen),
            Candidate("linen: QSD", _linen(quantal.jax.linen.QSD(RATE, ALPHA)), linen),
            Candidate(equinox, _equinox(eqx.nn.Dropout(RATE)), equinox),
            Candidate("equinox: QSD", _equinox(quantal.jax.equinox.QSD(RATE, ALPHA)), equinox),
            Candidate(layers.GAMMAS, lambda x, k: two_gammas(x, k, law), layers.QSD, slow=True),
            Candidate(layers.BETA, lambda x, k: beta(x, k, law), layers.QSD, slow=True),
        ]

    def step(
        self, layer: Layer, shape: tuple[int, ...], dtype: str, mode: str
    ) -> Callable[[], object]:
        """Return a forward and backward pass that waits for its results."""
        draw = np.random.default_rng(0).standard_normal
        x, upstream = (jnp.asarray(draw(shape, np.float32), dtype) for _ in range(2))
        arguments = x, jax.random.key(0), upstream
        call = _passes(layer) if mode == "eager" else self.program(layer, shape, dtype)
        return lambda: jax.block_until_ready(call(*arguments))

    def program(self, layer: Layer, shape: tuple[int, ...], dtype: str) -> Any:
        """Return the compiled program of a forward and backward pass."""
        x, key = jax.ShapeDtypeStruct(shape, dtype), jax.random.key(0)
        return jax.jit(_passes(layer)).lower(x, key, x).compile()


def _passes(layer: Layer) -> Callable[..., tuple[jax.Array, ...]]:
    def run(x: jax.Array, key: jax.Array, upstream: jax.Array) -> tuple[jax.Array, ...]:
        y, pull = jax.vjp(lambda x: layer(x, key), x)
        return y, *pull(upstream)

    return run


def _nnx(layer: nnx.Dropout) -> Layer:
    return lambda x, key: layer(x, rngs=key)


def _linen(layer: Any) -> Layer:
    return lambda x, key: layer.apply({}, x, False, rng=key)


def _equinox(layer: Any) -> Layer:
    return lambda x, key: layer(x, key=key)


def measure(task: Task) -> list[Row]:
    """Measure the cost of layers."""
    return layers.measure(Jax(task.device), task)
