"""The draw of the Keras layers on TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from quantal._watch import NativeMask
from quantal.dilution import Dilution
from quantal.keras._draw import NOTHING_SHARED, RandomSource, SharedAxes
from quantal.keys import Key
from quantal.sites import Site
from quantal.tensorflow import _functional as functional
from quantal.tensorflow._random_bits import fold_in, from_seed
from quantal.tensorflow._watch import native_masks


def make_tables(law: Dilution, shared: bool) -> VariableTables:
    """Return the tables of a layer, whose changes also reach graphs that are traced already."""
    return VariableTables(law, shared)


def dilute(
    x: tf.Tensor,
    law: Dilution,
    source: RandomSource,
    axes: SharedAxes = NOTHING_SHARED,
    tables: VariableTables | None = None,
) -> tf.Tensor:
    """Dilute x by a law, drawing from a source."""
    mask_shape, p_shape = functional.check_input(x, *axes)
    seed_and_calls = source.generator.next()
    if law.rate == 1:
        return functional.zeros(x)
    if isinstance(source.seed, Key):
        keys = fold_in(source.seed, seed_and_calls[1])
    else:
        keys = from_seed(seed_and_calls)
    shared = p_shape is not None
    arrays: Sequence[tf.Tensor]
    if tables is not None and tables.shared == shared:
        arrays = tables.read()
    else:  # no layer, or one whose p_broadcast_dims were set or emptied later
        arrays = functional.constants(law, shared, x.device)
    return functional.multiply(x, functional.coefficients(arrays, mask_shape, p_shape, keys))


def masks_of_call(call: Callable[..., Any], args: tuple[Any, ...]) -> list[NativeMask]:
    """Return the masks that a call draws without QSD; it is traced, so that nothing happens."""
    if tf.config.functions_run_eagerly():
        return native_masks(lambda: call(*args))
    trace = tf.function(lambda: call(*args), autograph=False).get_concrete_function
    return native_masks(trace)


masks_of_function = native_masks


def sites_of_modules(layer: Any) -> list[Site]:
    """Return nothing: TensorFlow has no dropout but that of Keras."""
    return []


class VariableTables:
    """The tables of a layer as variables, so that compiled functions see a change of its law.

    They are variables of TensorFlow, not of Keras, in an object that neither of them looks into. So
    they are no weights, and are not saved.
    """

    def __init__(self, law: Dilution, shared: bool) -> None:
        self.law, self.shared, self.filled = law, shared, False
        # Made now, since TensorFlow traces a function twice if a variable appears in it; but of
        # zeros, which all layers share, until the numbers are needed.
        with tf.init_scope():  # for layers that are made while a graph is
            self.variables = [
                tf.Variable(
                    zeros,
                    trainable=False,
                    aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
                )
                for zeros in _empty_tables(shared)
            ]

    def read(self) -> list[tf.Tensor]:
        """Return the tables."""
        if not self.filled:
            with tf.init_scope():
                self._fill()
        return [tf.convert_to_tensor(variable) for variable in self.variables]

    def assign(self, law: Dilution) -> None:
        """Change the law."""
        self.law = law
        if self.filled:
            self._fill()

    def _fill(self) -> None:
        for variable, array in zip(
            self.variables, functional.tables(self.law, self.shared), strict=True
        ):
            variable.assign(array)
        self.filled = True


@functools.cache
def _empty_tables(shared: bool) -> list[tf.Tensor]:
    shapes = functional.table_shapes(shared)
    return [tf.zeros(shape, dtype) for shape, dtype in shapes]
