"""Random bits in TensorFlow: the keys of a call, the cipher, and look-ups by fours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from quantal._errors import wrong_type
from quantal.keys import CELLS, Key, threefry2x32

__all__ = ["Keys", "by_fours", "cells", "checked_source", "fold_in", "from_seed", "keys_of"]
__all__ += ["levels", "look_up"]

Tensor: TypeAlias = Any
Shape: TypeAlias = tuple[int | Tensor, ...] | Tensor

_SOURCES = "a tf.random.Generator, a seed (two integers), a quantal.key or None"


class Keys(NamedTuple):
    """What one call draws from: the keys of units and of shared probabilities, and its level."""

    own: Tensor
    shared: Tensor
    level: Tensor


def fold_in(key: Key, n: Tensor) -> Keys:
    """Return the keys of ``key.fold_in(n)``, where n may be known only in the graph."""
    return Keys(*_descend(tf.constant([key.word0, key.word1], tf.uint32), tf.cast(n, tf.int64)))


def from_seed(seed: Tensor) -> Keys:
    """Return the keys of a pair of integers: those of ``quantal.key(first).fold_in(second)``."""
    first, second = tf.unstack(tf.cast(seed, tf.int64))
    return Keys(*_descend(tf.reverse(tf.bitcast(first, tf.uint32), [0]), second))


def checked_source(rng: Any) -> Any:
    """Return a source of randomness that `keys_of` takes; a seed as a tensor."""
    if rng is None or isinstance(rng, Key | tf.random.Generator):
        return rng
    try:
        seed = tf.convert_to_tensor(rng)
    except (TypeError, ValueError):
        raise wrong_type("rng", _SOURCES, rng) from None
    if not seed.dtype.is_integer or not seed.shape.is_compatible_with((2,)):
        raise wrong_type("rng", _SOURCES, rng)
    return seed


def keys_of(rng: Any) -> Keys:
    """Return the keys of one call."""
    if isinstance(rng, Key):
        own, shared, call = rng.split(3)
        words = tf.constant([[own.word0, own.word1], [shared.word0, shared.word1]], tf.uint32)
        return Keys(words[0], words[1], tf.constant(call.level(), tf.int64))
    if isinstance(rng, tf.random.Generator):
        rng = rng.make_seeds(1)[:, 0]
    elif rng is None:
        rng = tf.random.uniform((2,), tf.int32.min, tf.int32.max, tf.int32)
    return from_seed(rng)


def _compiled(*signature: tuple[tuple[int | None, ...], tf.DType]) -> Any:
    # XLA compiles these functions also within ordinary graphs and eager code. There, the cipher
    # would be a hundred passes over memory, and TensorFlow's gather is slower than its dropout.
    return tf.function(
        input_signature=[tf.TensorSpec(*spec) for spec in signature],
        jit_compile=tf.test.is_built_with_xla() or None,
        autograph=False,
    )


_KEY, _COUNTERS = ((2,), tf.uint32), ((None,), tf.int32)


@_compiled(((2, CELLS), tf.float32), ((), tf.bool), ((None, 4), tf.uint16))
def look_up(values: Tensor, row: Tensor, cells: Tensor) -> Tensor:
    """Return the coefficients of cells in a row of a table."""
    offset = CELLS * tf.cast(row, tf.int32)
    return tf.gather(tf.reshape(values, (-1,)), tf.cast(cells, tf.int32) + offset)


def cells(key: Tensor, blocks: Tensor) -> Tensor:
    """Return the four 16-bit cells of each block."""
    # Halved outside the compiled function, which would encipher anew for every half.
    return tf.reshape(tf.bitcast(_words(key, blocks), tf.uint16), (-1, 4))


@_compiled(_KEY, _COUNTERS)
def _words(key: Tensor, blocks: Tensor) -> Tensor:
    return tf.stack(_cipher(key, blocks), axis=-1)


def levels(key: Tensor, shape: Shape) -> Tensor:
    """Return integers out of range(LEVELS), as `Key.levels` does."""
    size = _size(shape)
    return tf.reshape(_levels(key, tf.range(_rounded(size)))[:size], shape)


@_compiled(_KEY, _COUNTERS)
def _levels(key: Tensor, counters: Tensor) -> Tensor:
    return _level(*_cipher(key, counters))


@_compiled(_KEY, ((), tf.int64))
def _descend(key: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``own`` and ``shared`` of ``key.fold_in(n).split(3)``, and the level of ``call``."""
    low, high = tf.unstack(tf.bitcast(n, tf.uint32))
    zeros = tf.zeros((3,), tf.uint32)
    lows = tf.stack([zeros + low, tf.constant([0, 1, 2], tf.uint32), zeros])
    highs = tf.stack([zeros + high, zeros, zeros])

    def step(i: Tensor, words: tuple[Tensor, Tensor], _: Any) -> tuple[Tensor, Any, Any]:
        return i + 1, threefry2x32(words, (highs[i], lows[i]), _rotate), words

    # A loop for three steps, since XLA would repeat steps written out for each unit of the array.
    start = (zeros + key[0], zeros + key[1])
    _, drawn, words = tf.while_loop(lambda i, *_: i < 3, step, (0, start, start))
    keys = tf.stack(words, axis=-1)
    return keys[0], keys[1], _level(*drawn)[2]


def _cipher(key: Tensor, counters: Tensor) -> tuple[Tensor, Tensor]:
    low = tf.cast(counters, tf.uint32)
    return threefry2x32((key[0], key[1]), (tf.zeros_like(low), low), _rotate)


def _level(word0: Tensor, word1: Tensor) -> Tensor:
    bits = tf.bitwise.right_shift(word0 ^ word1, tf.constant(2, tf.uint32))
    return tf.cast(bits, tf.int64)


def _rotate(x: Tensor, places: int) -> Tensor:
    left, right = tf.constant(places, tf.uint32), tf.constant(32 - places, tf.uint32)
    return tf.bitwise.left_shift(x, left) | tf.bitwise.right_shift(x, right)


def by_fours(draw: Callable[[Tensor], Tensor], shape: Shape) -> Tensor:
    """Draw by blocks of four units, in the layout of `Key.indices`."""
    lengths = (1, *shape) if isinstance(shape, tuple) else tf.concat([[1], shape], 0)
    rows, last = _size(lengths[:-1]), lengths[-1]
    per_row = -(-last // 4)
    drawn = draw(tf.range(_rounded(rows * per_row)))[: rows * per_row]
    return tf.reshape(tf.reshape(drawn, (rows, 4 * per_row))[:, :last], shape)


def _size(shape: Shape) -> int | Tensor:
    return math.prod(shape) if isinstance(shape, tuple) else tf.reduce_prod(shape)


def _rounded(count: int | Tensor) -> int | Tensor:
    """Round up to four leading bits: XLA compiles for each size, so there should be few."""
    if isinstance(count, int):
        step = 1 << max(count.bit_length() - 4, 0)
    else:
        octave = tf.floor(tf.math.log(tf.cast(count, tf.float64)) / math.log(2))
        step = tf.cast(2 ** tf.maximum(octave - 3, 0), tf.int32)
    return -(-count // step) * step
