"""Random bits from a JAX key, laid out as in `quantal.keys`.

With JAX's default keys the native draw is the portable one. Other generators have no counters, and
their bits are whatever `jax.random.bits` makes them.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from jax.extend.random import threefry2x32_p

from quantal._errors import wrong_type
from quantal.keys import Key

__all__ = ["NO_KEY", "indices", "level", "levels", "split", "typed_key"]

_KEY = "a JAX key, as from jax.random.key(0), or a quantal.key"
NO_KEY = f"{_KEY}; JAX has no global stream to fall back on: pass key=jax.random.key(seed)"
_HALF = np.uint32(0xFFFF)
_SIXTEEN = np.uint32(16)


def typed_key(key: Any) -> jax.Array:
    """Return a single typed JAX key; legacy keys are those of the default implementation."""
    if isinstance(key, Key):
        words = np.array([key.word0, key.word1], np.uint32)
        return jax.random.wrap_key_data(words, impl="threefry2x32")
    if key is None:
        raise wrong_type("key", NO_KEY, key)
    if isinstance(key, jax.Array | np.ndarray):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.ndim == 0:
                return key
            raise wrong_type("key", f"{_KEY}; for a key per example use jax.vmap", jax.typeof(key))
        if key.dtype == jnp.uint32 and key.ndim == 1:
            return jax.random.wrap_key_data(key)
    raise wrong_type("key", _KEY, key)


def split(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the keys of the units, of the shared probabilities and of the call."""
    with jax.threefry_partitionable(True):  # the layout of portable keys, also where it is not set
        own, shared, call = jax.random.split(key, 3)
    return own, shared, call


def level(key: jax.Array) -> jax.Array:
    """Return one integer out of ``range(2**30)``."""
    return levels(key, ())


def levels(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return integers out of ``range(2**30)``, as int32."""
    with jax.threefry_partitionable(True):
        bits = jax.random.bits(key, shape, jnp.uint32)
    return (bits >> np.uint32(2)).astype(jnp.int32)


def indices(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return 16 random bits an element, as int32.

    A block of the cipher gives two words of 32 bits and serves four neighbours of the last axis.
    """
    if str(jax.random.key_impl(key)) != "threefry2x32":
        return jax.random.bits(key, shape, jnp.uint16).astype(jnp.int32)
    *rows, last = shape or (1,)
    blocks = (*rows, -(-last // 4))
    positions = [lax.broadcasted_iota(jnp.uint32, blocks, axis) for axis in range(len(blocks))]
    word0, word1 = jax.random.key_data(key)
    words = threefry2x32_p.bind(word0, word1, *counters(positions, blocks))
    # All in one fused loop: a stack of the four halves would be a loop with branches.
    fours = (*blocks, 4)
    unit = lax.broadcasted_iota(jnp.uint32, fours, len(blocks))
    low, high = (lax.broadcast_in_dim(word, fours, range(len(blocks))) for word in words)
    word = lax.select(unit < np.uint32(2), low, high)
    halves = (word >> (unit % np.uint32(2) * _SIXTEEN)) & _HALF
    padded = halves.astype(jnp.int32).reshape(*rows, 4 * blocks[-1])
    return padded[..., :last].reshape(shape)


def counters(positions: list[jax.Array], shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Return the high and the low words of the row-major indices of positions in an array.

    In words of 32 bits, since JAX has no others unless its 64-bit mode is on.
    """
    high = low = jnp.zeros_like(positions[0])
    for axis, position in enumerate(positions):
        stride = math.prod(shape[axis + 1 :])
        step = position * np.uint32(stride & 0xFFFFFFFF)
        low = low + step
        if math.prod(shape) > 2**32:
            carried = (low < step).astype(jnp.uint32)
            high = high + carried + _high_product(position, stride & 0xFFFFFFFF)
            high = high + position * np.uint32(stride >> 32)
    return high, low


def _high_product(a: jax.Array, b: int) -> jax.Array:
    """Return the upper 32 of the 64 bits of a product, by halves of 16 bits."""
    a0, a1 = a & _HALF, a >> _SIXTEEN
    b0, b1 = np.uint32(b & 0xFFFF), np.uint32(b >> 16)
    middle = a1 * b0 + (a0 * b0 >> _SIXTEEN)
    return a1 * b1 + (middle >> _SIXTEEN) + ((middle & _HALF) + a0 * b1 >> _SIXTEEN)
