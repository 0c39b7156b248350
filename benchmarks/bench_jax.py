"""QSD in JAX against each library's own dropout: python benchmarks/bench_jax.py [rounds].

A step is one compiled program that returns the layer's output and the gradient of its input, with
the key as an argument, as in training.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import equinox as eqx
import harness
import jax
import numpy as np
from flax import linen as nn
from flax import nnx
from jax import numpy as jnp

import quantal
import quantal.jax.equinox
import quantal.jax.linen
import quantal.jax.nnx

RATE, ALPHA = 0.2, 0.2
SHAPES = ((1024, 4096), (64, 256))
RECIPE = "the paper's recipe"  # so slow that it is timed apart, in few rounds

Layer = Callable[[jax.Array, jax.Array], jax.Array]


def recipe(x: jax.Array, key: jax.Array) -> jax.Array:
    """Dilute by the paper's listing: p from two gamma draws, then a mask, then a rescaling."""
    retain, beta = 1 - RATE, ALPHA * RATE / (1 - RATE)
    first, second, third = jax.random.split(key, 3)
    a = jax.random.gamma(first, ALPHA, x.shape)
    p = a / (a + jax.random.gamma(second, beta, x.shape))
    mask = jax.random.uniform(third, x.shape) < p
    return x * jax.lax.stop_gradient(p * mask / retain**2)


def layers(portable: quantal.keys.Key) -> dict[str, Layer]:
    """Return every candidate as a function of an array and a key."""
    nnx_native, nnx_qsd = nnx.Dropout(RATE), quantal.jax.nnx.QSD(RATE, ALPHA)
    linen_native, linen_qsd = nn.Dropout(RATE), quantal.jax.linen.QSD(RATE, ALPHA)
    eqx_native, eqx_qsd = eqx.nn.Dropout(RATE), quantal.jax.equinox.QSD(RATE, ALPHA)
    return {
        "nnx.Dropout": lambda x, key: nnx_native(x, rngs=key),
        "nnx QSD": lambda x, key: nnx_qsd(x, rngs=key),
        "linen.Dropout": lambda x, key: linen_native.apply({}, x, False, rng=key),
        "linen QSD": lambda x, key: linen_qsd.apply({}, x, False, rng=key),
        "eqx.nn.Dropout": lambda x, key: eqx_native(x, key=key),
        "equinox QSD": lambda x, key: eqx_qsd(x, key=key),
        "dilute, portable key": lambda x, key: quantal.dilute(x, RATE, ALPHA, rng=portable),
        "bare multiply": lambda x, key: x * jnp.float32(1.25),
        RECIPE: recipe,
    }


def step(layer: Layer, shape: tuple[int, ...]) -> Callable[[], object]:
    """Return a call of the compiled forward and backward pass that waits for its results."""

    @jax.jit
    def run(x: jax.Array, key: jax.Array, upstream: jax.Array) -> tuple[jax.Array, ...]:
        y, pull = jax.vjp(lambda x: layer(x, key), x)
        return y, *pull(upstream)

    draw = np.random.default_rng(0).standard_normal
    x, upstream = (jnp.asarray(draw(shape, dtype=np.float32)) for _ in range(2))
    key = jax.random.key(0)
    return lambda: jax.block_until_ready(run(x, key, upstream))


def main(rounds: int) -> None:
    """Print the tables."""
    print(f"JAX {jax.__version__} on {jax.default_backend()}, {os.cpu_count()} cores.\n")
    for shape in SHAPES:
        steps = {name: step(layer, shape) for name, layer in layers(quantal.key(0)).items()}
        slow = {name: steps.pop(name) for name in [RECIPE]}
        title, size = " × ".join(map(str, shape)), int(np.prod(shape))
        for native, own in (
            ("nnx.Dropout", ["nnx QSD", "dilute, portable key", "bare multiply"]),
            ("linen.Dropout", ["linen QSD"]),
            ("eqx.nn.Dropout", ["equinox QSD"]),
        ):
            chosen = {name: steps[name] for name in [native, *own]}
            timings = harness.compare(chosen, native, rounds=rounds)
            print(harness.table(f"{title} float32: ratio to {native}", timings, size))
        chosen = {"nnx QSD": steps["nnx QSD"], **slow}
        timings = harness.compare(chosen, "nnx QSD", rounds=3, warm_up=1)
        print(harness.table(f"{title} float32: ratio to QSD", timings, size))


if __name__ == "__main__":
    harness.keep_memory()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 31)
