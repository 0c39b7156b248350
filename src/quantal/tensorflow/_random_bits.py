"""Random bits in TensorFlow: the keys of a call, the cipher, and look-ups by fours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from quantal._errors import wrong_type
from quantal.keys import CELLS, Key, threefry2x32

__all__ = ["Keys", "UnknownRank", "by_fours", "cells", "checked_source", "fold_in", "from_seed"]
__all__ += ["keys_of", "levels", "look_up"]

Tensor: TypeAlias = Any


@dataclass(frozen=True)
class UnknownRank:
    """The shape of a tensor of unknown rank: the sizes of its axes, and their product."""

    sizes: Tensor
    count: Tensor


Shape: TypeAlias = tuple[int | Tensor, ...] | UnknownRank

_SOURCES = "a tf.random.Generator, a seed (two integers), a quantal.key or None"


class Keys(NamedTuple):
    """What a call draws from: the keys of units and of shared probabilities, and its level."""

    own: Tensor
    shared: Tensor
    level: Tensor


def fold_in(key: Key, n: Tensor) -> Keys:
    """Return the keys of ``key.fold_in(n)``, where n may be known only in the graph."""
    return Keys(*_descend(_words_of(key), tf.cast(n, tf.int64)))


def from_seed(seed: Tensor) -> Keys:
    """Return the keys of a pair of integers: those of ``quantal.key(first).fold_in(second)``."""
    return Keys(*_descend_from_seed(tf.cast(seed, tf.int64)))


def checked_source(rng: Any) -> Any:
    """Return a source of randomness that `keys_of` takes; a seed as a tensor."""
    if rng is None or isinstance(rng, Key | tf.random.Generator):
        return rng
    try:
        seed = tf.convert_to_tensor(rng)
    except Exception:  # a TypeError, or what somebody's own class raises
        raise wrong_type("rng", _SOURCES, rng) from None
    if not seed.dtype.is_integer or not seed.shape.is_compatible_with((2,)):
        raise wrong_type("rng", _SOURCES, rng)
    return seed


def keys_of(rng: Any) -> Keys:
    """Return the keys of one call."""
    if isinstance(rng, Key):
        own, shared, call = rng.split(3)
        return Keys(_words_of(own), _words_of(shared), tf.constant(call.level(), tf.int64))
    if isinstance(rng, tf.random.Generator):
        rng = _seed_from(rng)
    elif rng is None:
        rng = tf.random.uniform((2,), tf.int32.min, tf.int32.max, tf.int32)
    return from_seed(rng)


def _words_of(key: Key) -> Tensor:
    return tf.constant([key.word0, key.word1], tf.uint32)


def _seed_from(generator: tf.random.Generator) -> Tensor:
    """Return ``generator.make_seeds(1)[:, 0]``, which itself would wait for a GPU."""
    size = 1 if generator.algorithm == 2 else 2  # of the counter, in Threefry and in others
    with tf.device("CPU:0"):  # where it is read
        one = tf.constant(1, tf.uint64)
    state = tf.bitcast(generator.skip(one), tf.uint64)
    first = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=[1],
        key=state[size : size + 1],
        counter=state[:size],
        dtype=tf.int64,
        alg=generator.algorithm,
    )
    return tf.concat([first, tf.constant([0], tf.int64)], 0)


def _compiled(*signature: tuple[tuple[int | None, ...], tf.DType]) -> Any:
    # XLA compiles these functions in ordinary graphs and eager code, too. Without it, the cipher
    # would be a hundred passes over memory, and TensorFlow's gather is slower than its dropout.
    # Besides, TensorFlow lacks GPU kernels for some of these operations, and keeps some 32-bit
    # integers in the memory of the host; compiled, all of it runs on the device.
    return tf.function(
        input_signature=[tf.TensorSpec(*spec) for spec in signature],
        jit_compile=tf.test.is_built_with_xla() or None,
        autograph=False,
    )


_KEY, _COUNT = ((2,), tf.uint32), ((), tf.int32)


@_compiled(((2, CELLS), tf.float32), ((), tf.bool), ((None, 4), tf.uint16))
def look_up(values: Tensor, row: Tensor, cells: Tensor) -> Tensor:
    """Return the coefficients of cells in a row of a table."""
    offset = CELLS * tf.cast(row, tf.int32)
    return tf.gather(tf.reshape(values, (-1,)), tf.cast(cells, tf.int32) + offset)


def cells(key: Tensor, count: int | Tensor) -> Tensor:
    """Return the four 16-bit cells of each of the first blocks."""
    # Split into halves outside the compiled function, which would encipher again for each half.
    return tf.reshape(tf.bitcast(_words(key, count), tf.uint16), (-1, 4))


@_compiled(_KEY, _COUNT)
def _words(key: Tensor, count: Tensor) -> Tensor:
    return tf.stack(_cipher(key, count), axis=-1)


def levels(key: Tensor, shape: Shape) -> Tensor:
    """Return integers out of range(LEVELS), as `Key.levels` does."""
    rows, last, sizes = _rows(shape)
    return tf.reshape(_levels(key, _rounded(rows * last))[: rows * last], sizes)


@_compiled(_KEY, _COUNT)
def _levels(key: Tensor, count: Tensor) -> Tensor:
    return _level(*_cipher(key, count))


@_compiled(((2,), tf.int64))
def _descend_from_seed(seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = tf.unstack(tf.bitcast(seed[0], tf.uint32))
    return _descend.python_function(tf.stack([high, low]), seed[1])


@_compiled(_KEY, ((), tf.int64))
def _descend(key: Tensor, n: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``own`` and ``shared`` of ``key.fold_in(n).split(3)``, and the level of ``call``."""
    low, high = tf.unstack(tf.bitcast(n, tf.uint32))
    zeros = tf.zeros((3,), tf.uint32)
    lows = tf.stack([zeros + low, tf.constant([0, 1, 2], tf.uint32), zeros])
    highs = tf.stack([zeros + high, zeros, zeros])

    def step(i: Tensor, words: tuple[Tensor, Tensor], _: Any) -> tuple[Tensor, Any, Any]:
        return i + 1, threefry2x32(words, (highs[i], lows[i]), _rotate), words

    # A loop of three steps: written out, XLA would repeat them for each unit of the array.
    start = (zeros + key[0], zeros + key[1])
    _, drawn, words = tf.while_loop(lambda i, *_: i < 3, step, (0, start, start))
    keys = tf.stack(words, axis=-1)
    return keys[0], keys[1], _level(*drawn)[2]


def _cipher(key: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Encipher the first counters; XLA compiles this again for each count."""
    low = tf.cast(tf.range(count), tf.uint32)
    return threefry2x32((key[0], key[1]), (tf.zeros_like(low), low), _rotate)


def _level(word0: Tensor, word1: Tensor) -> Tensor:
    bits = tf.bitwise.right_shift(word0 ^ word1, tf.constant(2, tf.uint32))
    return tf.cast(bits, tf.int64)


def _rotate(x: Tensor, places: int) -> Tensor:
    left, right = tf.constant(places, tf.uint32), tf.constant(32 - places, tf.uint32)
    return tf.bitwise.left_shift(x, left) | tf.bitwise.right_shift(x, right)


def by_fours(draw: Callable[[int | Tensor], Tensor], shape: Shape) -> Tensor:
    """Draw an array in blocks of four units, in the layout of `Key.indices`."""
    rows, last, sizes = _rows(shape)
    per_row = -(-last // 4)
    drawn = draw(_rounded(rows * per_row))[: rows * per_row]
    return tf.reshape(tf.reshape(drawn, (rows, 4 * per_row))[:, :last], sizes)


def _rows(shape: Shape) -> tuple[int | Tensor, int | Tensor, Any]:
    """Return the number of rows, the length of each, and the sizes of all axes."""
    if isinstance(shape, tuple):
        *rows, last = shape or (1,)
        return math.prod(rows), last, shape
    last = tf.concat([[1], shape.sizes], 0)[-1]
    return shape.count // tf.maximum(last, 1), last, shape.sizes


def _rounded(count: int | Tensor) -> int | Tensor:
    """Round up to four leading bits: XLA compiles for each size, so there should be few."""
    if isinstance(count, int):
        step = 1 << max(count.bit_length() - 4, 0)
    else:
        # The largest power of two that goes eight times into it, by 32-bit integers alone: these
        # TensorFlow keeps on the host, where the size is needed.
        powers = 2 ** np.arange(28, dtype=np.int32)
        step = tf.reduce_max(powers * tf.minimum(count // (8 * powers), 1))
        step = tf.maximum(step, 1)
    return -(-count // step) * step
