"""`dilute` for TensorFlow tensors, eager, in a graph and under XLA."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from quantal._arguments import axes_as_given, flag
from quantal._errors import FLOATING, wrong_type, wrong_value
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.keys import CELLS, Key
from quantal.table import shared_table, table
from quantal.tensorflow._random_bits import (
    Keys,
    Shape,
    Tensor,
    UnknownRank,
    by_fours,
    cells,
    checked_source,
    keys_of,
    levels,
    look_up,
)

__all__ = ["check_input", "coefficients", "constants", "dilute", "multiply", "table_shapes"]
__all__ += ["tables", "zeros"]


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
        False returns x itself, whatever it is, as does a rate of 0.
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
    rng = checked_source(rng)
    shared = axes_as_given("broadcast_dims", broadcast_dims)
    p_shared = axes_as_given("p_broadcast_dims", p_broadcast_dims)
    if not flag("training", training) or dilution.rate == 0:
        return x
    x = as_tensor(x)
    mask_shape, p_shape = check_input(x, shared, p_shared)
    if dilution.rate == 1:
        return zeros(x)
    law = constants(dilution, p_shape is not None, x.device)
    return multiply(x, coefficients(law, mask_shape, p_shape, keys_of(rng)))


def as_tensor(x: Any) -> Tensor:
    """Return what TensorFlow can make a tensor of as one."""
    try:
        return tf.convert_to_tensor(x)
    except Exception:  # a TypeError, or what somebody's own class raises
        raise wrong_type("x", FLOATING, type(x)) from None


def multiply(x: Tensor, c: Tensor) -> Tensor:
    """Return x·c in the dtype of x; half precision is multiplied in float32 and rounded once.

    A dropped unit is 0, and so is its gradient, even if x or the gradient is infinite or NaN.
    """
    wide = tf.float64 if x.dtype == tf.float64 else tf.float32
    c = tf.stop_gradient(c)  # otherwise all that c is computed from would be kept
    y = tf.cast(tf.math.multiply_no_nan(tf.cast(x, wide), tf.cast(c, wide)), x.dtype)
    y.set_shape(x.shape)
    return y


def zeros(x: Tensor) -> Tensor:
    """Return zeros for a rate of 1; with ``zeros_like``, the gradient would be None."""
    return multiply(x, tf.zeros_like(x))


def coefficients(
    law: Sequence[Tensor], mask_shape: Shape, p_shape: Shape | None, keys: Keys
) -> Tensor:
    """Draw coefficients from `tables`, by the plan of `quantal.keys`; float32."""
    if p_shape is None:
        values, threshold = law
        row = keys.level < threshold
        return by_fours(lambda count: look_up(values, row, cells(keys.own, count)), mask_shape)
    keep_below, values = law
    cell = tf.cast(by_fours(lambda count: cells(keys.shared, count), p_shape), tf.int32)
    keep = levels(keys.own, mask_shape) < tf.gather(keep_below, cell)
    return tf.where(keep, tf.gather(values, cell), 0.0)


def tables(dilution: Dilution, shared: bool) -> tuple[Any, Any]:
    """Return the arrays that `coefficients` reads; integers as int64, which GPUs can hold."""
    if shared:
        drawn = shared_table(dilution)
        return drawn.keep_below.astype(np.int64), drawn.values
    return table(dilution).values, np.int64(table(dilution).threshold)


def table_shapes(shared: bool) -> list[tuple[tuple[int, ...], tf.DType]]:
    """Return the shapes and dtypes of `tables`."""
    if shared:
        return [((CELLS,), tf.int64), ((CELLS,), tf.float32)]
    return [((2, CELLS), tf.float32), ((), tf.int64)]


@functools.lru_cache(maxsize=64)
def constants(dilution: Dilution, shared: bool, device: str) -> tuple[Tensor, Tensor]:
    """Return `tables` as tensors."""
    # Made outside any graph, so that graphs refer to one tensor instead of holding copies.
    with tf.init_scope(), tf.device(device):
        first, second = tables(dilution, shared)
        return tf.constant(first), tf.constant(second)


def check_input(x: Tensor, shared: Axes, p_shared: Axes) -> tuple[Shape, Shape | None]:
    """Return the shapes of coefficients and probabilities, as `coefficient_shapes` does."""
    if not isinstance(x, tf.Tensor | tf.Variable):  # but sparse or ragged, say, as Keras has it
        raise wrong_type("x", FLOATING, type(x))
    if not x.dtype.is_floating:
        raise wrong_type("x", FLOATING, x.dtype.name)
    if x.shape.rank is None:
        if shared != () or p_shared != ():
            raise wrong_value("x", "a tensor of known rank, to name axes of it", x.shape)
        return UnknownRank(tf.shape(x), tf.size(x)), None
    sizes = [tf.shape(x)[axis] if n is None else n for axis, n in enumerate(x.shape)]
    return coefficient_shapes(sizes, shared, p_shared)
