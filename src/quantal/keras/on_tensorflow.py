"""The draw of the Keras layers on TensorFlow."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from quantal import tensorflow as adapter
from quantal.dilution import Dilution
from quantal.keys import Key


def dilute(layer: Any, x: tf.Tensor, shared_axes: tuple[int, ...]) -> tf.Tensor:
    """Dilute x by the law of a layer, drawing from its seed."""
    mask_shape, p_shape = adapter.shapes(x, shared_axes, layer.p_broadcast_dims)
    state = layer.seed_generator.next()  # (seed, calls)
    if layer.rate == 1:
        return adapter.zeros(x)
    if isinstance(layer.seed, Key):
        keys = adapter.fold_in(layer.seed, state[1])
    else:
        keys = adapter.from_seed(state)
    if layer._tables is None:
        layer._tables = Tables(layer.dilution)
    law = layer._tables.read(shared=p_shape is not None)
    return adapter.multiply(x, adapter.coefficients(law, mask_shape, p_shape, keys))


class Tables:
    """The tables of a layer as variables, so that compiled functions see a change of its law.

    Variables of TensorFlow and not of Keras, held by an object that neither of them looks into:
    they are no weights, and are not saved.
    """

    def __init__(self, dilution: Dilution) -> None:
        self.dilution = dilution
        self.variables: dict[bool, list[tf.Variable]] = {}

    def read(self, shared: bool) -> tuple[tf.Variable, ...]:
        """Return the variables for shared retain probabilities or for ordinary units."""
        if shared not in self.variables:
            with tf.init_scope():
                self.variables[shared] = [
                    tf.Variable(array, trainable=False)
                    for array in adapter.tables(self.dilution, shared)
                ]
        return tuple(self.variables[shared])

    def assign(self, dilution: Dilution) -> None:
        """Change the law."""
        self.dilution = dilution
        for shared, variables in self.variables.items():
            for variable, array in zip(variables, adapter.tables(dilution, shared), strict=True):
                variable.assign(array)
