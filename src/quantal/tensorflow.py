"""``quantal.tensorflow.dilute``: QSD for TensorFlow tensors, eager, in a graph and under XLA."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from quantal.checks import FLOATING, require, wrong_type, wrong_value
from quantal.dilution import Dilution, Vary
from quantal.granularity import Axes, coefficient_shapes
from quantal.keys import Key, threefry2x32
from quantal.table import CELLS, shared_table, table

require("tensorflow", "keras")
import tensorflow as tf  # noqa: E402

__all__ = [
    "check_input",
    "coefficients",
    "dilute",
    "fold_in",
    "from_seed",
    "multiply",
    "tables",
    "zeros",
]

Tensor: TypeAlias = Any
Shape: TypeAlias = tuple[int | Tensor, ...] | Tensor

_SOURCES = "a tf.random.Generator, a seed (two integers), a quantal.key or None"


@tf.autograph.experimental.do_not_convert
def dilute(
    x: Tensor,
    rate: float,
    alpha: float | None = None,
    *,
    rng: tf.random.Generator | Tensor | Key | None = None,
    training: bool = True,
    vary: Vary = "pq",
    unit_mean: bool = False,
    broadcast_dims: Axes = (),
    p_broadcast_dims: Axes = (),
) -> Tensor:
    """Multiply every unit of a tensor by a random coefficient of Quantal Synaptic Dilution.

    Parameters
    ----------
    x : tf.Tensor
        A floating-point tensor; its static shape need not be known.
    rate : float
        The probability in [0, 1] that a unit is dropped.
    alpha : float
        The homogeneity, above 0; ``inf`` is standard dropout.
    rng : tf.random.Generator, seed or quantal.Key, optional
        A seed is a pair of integers, as for ``tf.random.stateless_uniform``; ``(a, b)`` means
        ``quantal.key(a).fold_in(b)``. Left out, a seed is drawn from TensorFlow's global stream,
        which ``tf.nn.dropout`` uses. From one seed or key come the same coefficients, eager, in a
        graph, under XLA, and on any device.
    training : bool
        False returns x itself, as does a rate of 0.
    vary, unit_mean
        As in `quantal.Dilution`.
    broadcast_dims : int or tuple of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : int or tuple of int
        Axes along which only the retain probability is shared; masks stay independent.

    Returns
    -------
    tf.Tensor
        Of the same shape and dtype.

    Examples
    --------
    >>> import quantal, tensorflow as tf
    >>> dilute(tf.ones((2, 4)), 0.5, 1.0, rng=quantal.key(0)).numpy()
    array([[0.6197041, 3.8779285, 0.       , 0.       ],
           [2.8753822, 0.       , 1.8864882, 0.       ]], dtype=float32)
    """
    dilution = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    given, x = x, tf.convert_to_tensor(x)
    mask_shape, p_shape = check_input(x, broadcast_dims, p_broadcast_dims)
    rng = _checked(rng)
    if not training or dilution.rate == 0:
        return given
    if dilution.rate == 1:
        return zeros(x)
    law = _constants(dilution, p_shape is not None, x.device)
    return multiply(x, coefficients(law, mask_shape, p_shape, _keys(rng)))


def multiply(x: Tensor, c: Tensor) -> Tensor:
    """Return x·c in the dtype of x; half precision is multiplied in float32 and rounded once."""
    wide = tf.float64 if x.dtype == tf.float64 else tf.float32
    y = tf.cast(tf.cast(x, wide) * tf.cast(c, wide), x.dtype)
    y.set_shape(x.shape)
    return y


def zeros(x: Tensor) -> Tensor:
    """Return the zeros of rate 1; the gradient of ``zeros_like`` would be None."""
    return tf.where(tf.zeros_like(x, tf.bool), x, tf.zeros_like(x))


def coefficients(
    law: Sequence[Tensor], mask_shape: Shape, p_shape: Shape | None, keys: Keys
) -> Tensor:
    """Draw coefficients from `tables`, by the plan of `quantal.keys`; float32."""
    if p_shape is None:
        values, threshold = law
        row = keys.level < threshold
        return _by_fours(lambda blocks: _look_up(values, row, _cells(keys.own, blocks)), mask_shape)
    keep_below, values = law
    cell = tf.cast(_by_fours(lambda blocks: _cells(keys.shared, blocks), p_shape), tf.int32)
    size = _size(mask_shape)
    levels = tf.reshape(_levels(keys.own, tf.range(_rounded(size)))[:size], mask_shape)
    return tf.where(levels < tf.gather(keep_below, cell), tf.gather(values, cell), 0.0)


def tables(dilution: Dilution, shared: bool) -> tuple[Any, Any]:
    """Return the arrays that `coefficients` reads; integers as int64, which GPUs can hold."""
    if shared:
        drawn = shared_table(dilution)
        return drawn.keep_below.astype(np.int64), drawn.values
    return table(dilution).values, np.int64(table(dilution).threshold)


@functools.lru_cache(maxsize=64)
def _constants(dilution: Dilution, shared: bool, device: str) -> tuple[Tensor, Tensor]:
    # Made outside any graph: graphs then refer to the one tensor instead of holding a copy each.
    with tf.init_scope(), tf.device(device):
        first, second = tables(dilution, shared)
        return tf.constant(first), tf.constant(second)


def check_input(x: Tensor, shared: Axes, p_shared: Axes) -> tuple[Shape, Shape | None]:
    """Return the shapes of coefficients and probabilities, as `coefficient_shapes` does."""
    if not x.dtype.is_floating:
        raise wrong_type("x", FLOATING, x.dtype.name)
    if x.shape.rank is None:
        if shared != () or p_shared != ():
            raise wrong_value("x", "a tensor of known rank, to name axes of it", x.shape)
        return tf.shape(x), None
    sizes = [tf.shape(x)[axis] if n is None else n for axis, n in enumerate(x.shape)]
    return coefficient_shapes(sizes, shared, p_shared)


def _by_fours(draw: Callable[[Tensor], Tensor], shape: Shape) -> Tensor:
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


# --- random bits ---------------------------------------------------------------------------------


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


def _checked(rng: Any) -> Any:
    if rng is None or isinstance(rng, Key | tf.random.Generator):
        return rng
    try:
        seed = tf.convert_to_tensor(rng)
    except (TypeError, ValueError):
        raise wrong_type("rng", _SOURCES, rng) from None
    if not seed.dtype.is_integer or not seed.shape.is_compatible_with((2,)):
        raise wrong_type("rng", _SOURCES, rng)
    return seed


def _keys(rng: Any) -> Keys:
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
def _look_up(values: Tensor, row: Tensor, cells: Tensor) -> Tensor:
    offset = CELLS * tf.cast(row, tf.int32)
    return tf.gather(tf.reshape(values, (-1,)), tf.cast(cells, tf.int32) + offset)


def _cells(key: Tensor, blocks: Tensor) -> Tensor:
    # Halved outside the compiled function, which would encipher anew for every half.
    return tf.reshape(tf.bitcast(_words(key, blocks), tf.uint16), (-1, 4))


@_compiled(_KEY, _COUNTERS)
def _words(key: Tensor, blocks: Tensor) -> Tensor:
    return tf.stack(_cipher(key, blocks), axis=-1)


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
