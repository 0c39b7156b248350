"""Keys, and random bits from them, laid out as in `quantal.keys`.

With JAX's default generator, Threefry, a JAX key is a portable key. Other generators have no
counters, and their bits are whatever `jax.random.bits` makes them.
"""

from __future__ import annotations

import math
from typing import Any, cast

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal._errors import wrong_type
from quantal.jax._private_api import threefry2x32
from quantal.keys import Key

__all__ = ["NO_KEY", "indices", "level", "levels", "split", "threefry_key", "typed_key"]

_KEY = "a JAX key, as from jax.random.key(0), or a quantal.key"
NO_KEY = f"{_KEY}; JAX has no global stream to fall back on: pass key=jax.random.key(seed)"
_HALF = np.uint32(0xFFFF)
_SIXTEEN = np.uint32(16)


def typed_key(key: Any) -> jax.Array:
    """Return a key of any kind as a single typed JAX key.

    Legacy keys, which are plain integers, count as keys of JAX's default generator.
    """
    if isinstance(key, Key):
        return threefry_key(np.array([key.word0, key.word1], np.uint32))
    if key is None:
        raise wrong_type("key", NO_KEY, key)
    if isinstance(key, jax.Array | np.ndarray):
        key = cast("jax.Array", key)
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
            if key.ndim == 0:
                return key
            raise wrong_type("key", f"{_KEY}; for a key per example use jax.vmap", jax.typeof(key))
        if key.dtype == jnp.uint32 and key.ndim == 1:
            try:
                return jax.random.wrap_key_data(key)
            except TypeError:  # too few words, or too many
                raise wrong_type("key", _KEY, key) from None
    raise wrong_type("key", _KEY, key)


def threefry_key(words: Any) -> jax.Array:
    """Return the Threefry key of two words of 32 bits.

    The generator is named, since JAX's default is a setting, and keys of others have four words.

    Examples
    --------
    >>> bool(threefry_key(np.array([0, 7], np.uint32)) == jax.random.key(7))
    True
    """
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def split(key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the keys of the units, of the shared probabilities and of the call."""
    with jax.threefry_partitionable(True):  # the layout of portable keys, whatever the setting
        own, shared, call = jax.random.split(key, 3)
    return own, shared, call


def level(key: jax.Array) -> jax.Array:
    """Return one integer out of ``range(LEVELS)``."""
    return levels(key, ())


def levels(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return integers out of ``range(LEVELS)``, as int32."""
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
    words = threefry2x32((word0, word1), counters(positions, blocks))
    # This way it is one fused loop; to stack the four halves would be a loop with branches.
    fours = (*blocks, 4)
    unit = lax.broadcasted_iota(jnp.uint32, fours, len(blocks))
    low, high = (lax.broadcast_in_dim(word, fours, range(len(blocks))) for word in words)
    word = lax.select(unit < np.uint32(2), low, high)
    halves = (word >> (unit % np.uint32(2) * _SIXTEEN)) & _HALF
    padded = halves.astype(jnp.int32).reshape(*rows, 4 * blocks[-1])
    return padded[..., :last].reshape(shape)


def counters(positions: list[jax.Array], shape: tuple[int, ...]) -> tuple[jax.Array, jax.Array]:
    """Return the high and the low words of the row-major indices of positions in an array.

    As words of 32 bits, since JAX has no longer integers unless its 64-bit mode is on.
    """
    if not all(isinstance(size, int) for size in shape):
        return _counters_of_unknown_sizes(positions, shape)
    high = low = jnp.zeros_like(positions[0])
    for axis, position in enumerate(positions):
        stride = math.prod(shape[axis + 1 :])
        step = position * np.uint32(stride & 0xFFFFFFFF)
        low = low + step
        if math.prod(shape) > 2**32:
            carried = (low < step).astype(jnp.uint32)
            high = high + carried + _high_product(position, np.uint32(stride & 0xFFFFFFFF))
            high = high + position * np.uint32(stride >> 32)
    return high, low


def _counters_of_unknown_sizes(
    positions: list[jax.Array], shape: tuple[Any, ...]
) -> tuple[jax.Array, jax.Array]:
    """Do the same for the symbolic sizes of `jax.export`, which are known only in a run.

    Axis by axis, the index becomes index · size + position, always in both words.
    """
    high = low = jnp.zeros_like(positions[0])
    for position, symbol in zip(positions, shape, strict=True):
        size = jnp.asarray(symbol).astype(jnp.uint32)
        high, low = high * size + _high_product(low, size), low * size
        low = low + position
        high = high + (low < position).astype(jnp.uint32)
    return high, low


def _high_product(a: jax.Array, b: Any) -> jax.Array:
    """Return the upper 32 of the 64 bits of a product of words, computed from 16-bit halves."""
    a0, a1 = a & _HALF, a >> _SIXTEEN
    b0, b1 = b & _HALF, b >> _SIXTEEN
    middle = a1 * b0 + (a0 * b0 >> _SIXTEEN)
    return a1 * b1 + (middle >> _SIXTEEN) + ((middle & _HALF) + a0 * b1 >> _SIXTEEN)
