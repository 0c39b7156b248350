"""Weights between the layout of `examples.initial` and the variables of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from examples.experiments import Experiment
from examples.initial import shapes

__all__ = ["dump", "load"]

_PARTS = {"kernel": "kernel", "recurrent": "recurrent_kernel", "bias": "bias"}
_NORM = {"scale": "gamma", "bias": "beta"}


def load(model: keras.Model, weights: Mapping[str, NDArray]) -> None:
    """Set every trainable variable."""
    for name, value in weights.items():
        layer, variable = _find(model, name)
        variable.assign(_swapped(layer, value))


def dump(model: keras.Model, experiment: Experiment) -> dict[str, NDArray]:
    """Read every trainable variable."""
    found = {name: _find(model, name) for name in shapes(experiment)}
    return {
        name: _swapped(layer, keras.ops.convert_to_numpy(variable))
        for name, (layer, variable) in found.items()
    }


def _find(model: keras.Model, name: str) -> tuple[Any, Any]:
    """Return the layer, of a recurrent one its cell, and the variable of a canonical name."""
    *path, part = name.split("/")
    if not path:
        layer = model.get_layer(name)
        return layer, layer.embeddings
    layer = model.get_layer("_".join(path))
    layer = getattr(layer, "lstm", layer)
    layer = getattr(layer, "cell", layer)
    parts = _NORM if isinstance(layer, keras.layers.BatchNormalization) else _PARTS
    return layer, getattr(layer, parts[part])


def _swapped(layer: Any, value: NDArray) -> NDArray:
    """Swap the first two gates of a GRU: r, z, n here and z, r, n in Keras, or back."""
    if not isinstance(layer, keras.layers.GRUCell):
        return value
    first, second, third = np.split(value, 3, axis=-1)
    return np.concatenate([second, first, third], axis=-1)
