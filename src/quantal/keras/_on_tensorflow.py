"""The draw of the Keras layers on TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from quantal.dilution import Dilution
from quantal.keys import Key
from quantal.tensorflow import _functional as adapter
from quantal.tensorflow._random_bits import fold_in, from_seed


def dilute(layer: Any, x: tf.Tensor, shared_axes: tuple[int, ...]) -> tf.Tensor:
    """Dilute x by the law of a layer, drawing from its seed."""
    mask_shape, p_shape = adapter.check_input(x, shared_axes, layer.p_broadcast_dims)
    state = layer.seed_generator.next()  # (seed, calls)
    if layer.rate == 1:
        return adapter.zeros(x)
    keys = fold_in(layer.seed, state[1]) if isinstance(layer.seed, Key) else from_seed(state)
    if layer._tables is None:
        law = adapter.constants(layer.dilution, p_shape is not None, x.device)
    else:
        law = layer._tables.read()
    drawn = adapter.coefficients(law, mask_shape, p_shape, keys)
    return adapter.multiply(x, drawn)


class Tables:
    """The tables of a layer as variables, so that compiled functions see a change of its law.

    Variables of TensorFlow and not of Keras, held by an object that neither of them looks into:
    they are no weights, and are not saved.
    """

    def __init__(self, dilution: Dilution, shared: bool) -> None:
        self.dilution, self.shared, self.filled = dilution, shared, False
        # Empty until they are needed, but made now: a variable that appears while a function is
        # traced makes TensorFlow trace it twice.
        dtypes = (tf.int64, tf.float32) if shared else (tf.float32, tf.int64)
        with tf.init_scope():  # for layers that are made while a graph is
            self.variables = [
                tf.Variable(
                    tf.zeros((0,), dtype),
                    shape=tf.TensorShape(None),
                    trainable=False,
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )
                for dtype in dtypes
            ]

    def read(self) -> list[tf.Tensor]:
        """Return the tables."""
        if not self.filled:
            with tf.init_scope():
                self._fill()
        arrays = adapter.tables(self.dilution, self.shared)
        return [tf.ensure_shape(v, a.shape) for v, a in zip(self.variables, arrays, strict=True)]

    def assign(self, dilution: Dilution) -> None:
        """Change the law."""
        self.dilution = dilution
        if self.filled:
            self._fill()

    def _fill(self) -> None:
        arrays = adapter.tables(self.dilution, self.shared)
        for variable, array in zip(self.variables, arrays, strict=True):
            variable.assign(array)
        self.filled = True
