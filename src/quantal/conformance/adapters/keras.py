"""``quantal.keras.QSD`` on trial, on each of Keras's backends: one a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from quantal._errors import wrong_value
from quantal.conformance.adapters.layers import DTYPES, LayerAdapter

__all__ = ["on_configured", "on_jax", "on_tensorflow", "on_torch"]


def _layer(
    self: LayerAdapter,
    *,
    seed: int,
    training: bool,
    rate: float,
    alpha: float,
    **settings: Any,
) -> Callable[[Any], Any]:
    from quantal.keras import QSD

    made: list[QSD] = []

    def call(x: Any) -> Any:
        if not made:  # a layer of Keras casts its input to its own dtype, so that must be x's
            dtype = str(x.dtype).rpartition(".")[2].removeprefix("<dtype: '").removesuffix("'>")
            name = dtype if "float" in dtype else None
            made.append(QSD(rate, alpha, seed=seed, dtype=name, **settings))
        return made[0](x, training=training)

    return call


def _on(backend: str) -> None:
    """Have Keras run on a backend, which it does for the life of a process."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = backend
    import keras

    if (running := keras.backend.backend()) != backend:
        expected = f"{backend}, in a process of its own: Keras has one backend a process"
        raise wrong_value("KERAS_BACKEND", expected, running)


def _adapter(base: Any, **members: Any) -> LayerAdapter:
    """Return the adapter of a backend, with the layer of Keras in the place of its own."""
    made: LayerAdapter = type("KerasAdapter", (base,), {"layer": _layer, **members})()
    return made


def on_tensorflow() -> LayerAdapter:
    """Return the adapter for Keras on TensorFlow."""
    _on("tensorflow")
    from quantal.conformance.adapters.tensorflow import TensorFlowAdapter

    return _adapter(TensorFlowAdapter, name="keras-tensorflow")


def on_jax() -> LayerAdapter:
    """Return the adapter for Keras on JAX."""
    _on("jax")
    from quantal.conformance.adapters.jax import JaxAdapter

    # float64 is a switch of the whole process in JAX, which Keras reads when it starts.
    dtypes = tuple(name for name in DTYPES if name != "float64")
    return _adapter(JaxAdapter, name="keras-jax", dtypes=dtypes)


def on_torch() -> LayerAdapter:
    """Return the adapter for Keras on torch."""
    _on("torch")
    from quantal.conformance.adapters.torch import TorchAdapter

    return _adapter(TorchAdapter, name="keras-torch")


def on_configured() -> LayerAdapter:
    """Return the adapter for Keras on the backend that it is configured for."""
    import keras

    make = {"tensorflow": on_tensorflow, "jax": on_jax, "torch": on_torch}
    return make[keras.backend.backend()]()
