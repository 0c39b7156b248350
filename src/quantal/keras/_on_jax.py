"""The draw of the Keras layers on JAX."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from quantal import jax as adapter
from quantal.keys import Key


def dilute(layer: Any, x: jax.Array, shared_axes: tuple[int, ...]) -> jax.Array:
    """Dilute x by the law of a layer, drawing from its seed."""
    state = layer.seed_generator.next()  # (seed, calls), which Keras uses as a key
    if isinstance(layer.seed, Key):
        words = np.array([layer.seed.word0, layer.seed.word1], np.uint32)
        key = jax.random.fold_in(_key(words), state[1])
    else:
        key = _key(state)
    return adapter.dilute(
        x,
        layer.rate,
        layer.alpha,
        key=key,
        vary=layer.dilution.vary,
        unit_mean=layer.dilution.unit_mean,
        broadcast_dims=shared_axes,
        p_broadcast_dims=layer.p_broadcast_dims,
    )


def _key(words: Any) -> jax.Array:
    return jax.random.wrap_key_data(words, impl="threefry2x32")
