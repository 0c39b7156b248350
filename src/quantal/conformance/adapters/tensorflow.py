"""``quantal.tensorflow.dilute`` on trial, with a generator and with portable keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import quantal
from quantal.conformance._adapter import Array
from quantal.conformance.adapters.layers import LayerAdapter
from quantal.tensorflow import dilute

__all__ = ["TensorFlowAdapter", "native", "portable"]


class TensorFlowAdapter(LayerAdapter):
    """What the adapters for TensorFlow share."""

    # ruff: noqa: D102  (documented in the base class)

    def tensor(self, x: Array) -> Any:
        return tf.convert_to_tensor(x)

    def array(self, x: Any) -> Array:
        return np.asarray(x.numpy())

    def vjp(self, f: Callable[[Any], Any], x: Any, upstream: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            output = f(x)
        return output, tape.gradient(output, x, upstream)

    def global_state(self) -> object:
        return tf.random.get_global_generator().state.numpy().tobytes()


class _Native(TensorFlowAdapter):
    name = "tensorflow"

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        # Of from_seed(s), call k + 1 is call k of from_seed(s + 256): the seed is its counter.
        rng = tf.random.Generator.from_key_counter(seed, counter=[0, 0], alg="philox")
        return lambda x: dilute(x, rate, alpha, rng=rng, training=training, **settings)


class _Portable(TensorFlowAdapter):
    name = "tensorflow-key"

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        key, count = quantal.key(seed), iter(range(2**31))

        def call(x: Any) -> Any:
            own = key.fold_in(next(count))
            return dilute(x, rate, alpha, rng=own, training=training, **settings)

        return call


native, portable = _Native(), _Portable()
