"""Layers become QSD by a change of class: they stay the same objects in the same graph.

A converted layer is saved as the original one, with the alphas of all that is converted in it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from quantal.dilution import Dilution
from quantal.keras._layers import QSD, alpha_from_json, alpha_to_json
from quantal.keras._private_api import dropout_layer, unpickle_model
from quantal.keras._reroute import mixin_of, walk_without_options
from quantal.keras._spatial import Spatial, SpatialQSD1D, SpatialQSD2D, SpatialQSD3D
from quantal.keras._walk import walk

__all__ = [
    "LAYERS",
    "Converted",
    "alphas",
    "mark_owners",
    "put_back",
    "restore",
    "swap_layer",
    "swap_option",
]

LAYERS: dict[type, type[QSD]] = {
    keras.layers.Dropout: QSD,
    keras.layers.SpatialDropout1D: SpatialQSD1D,
    keras.layers.SpatialDropout2D: SpatialQSD2D,
    keras.layers.SpatialDropout3D: SpatialQSD3D,
}


@keras.saving.register_keras_serializable(package="quantal")
class Converted:
    """A layer that `convert` has changed, or that contains one."""

    _original: type
    _added: tuple[str, ...] = ()
    _waiting: tuple[Any, ...] = ()

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the original layer and, beside it, what to convert in it."""
        found = [(node.steps, alphas(node.layer)) for node in walk_without_options(self)]
        written = [
            [list(steps), {option: alpha_to_json(alpha) for option, alpha in by_option.items()}]
            for steps, by_option in found
            if by_option
        ]
        with _as_it_was(self):
            layer = keras.saving.serialize_keras_object(self)
        layer.pop("compile_config", None)  # Keras saves it beside this configuration, too
        config: dict[str, Any] = layer.pop("config")
        return {**config, "quantal": {"layer": layer, "alphas": [*written, *self._waiting]}}

    def __reduce__(self) -> Any:
        # Keras pickles the file of a model, and a method of its class to read it. pickle could not
        # find this class, but the method of any model will do.
        model: Any = super()
        return unpickle_model, model.__reduce__()[1]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make the original layer, and convert it again."""
        # What other layers, such as Bidirectional, set in the configuration is for the original.
        config = dict(config)
        conversion = config.pop("quantal")
        found = conversion["alphas"]
        layer = keras.saving.deserialize_keras_object({**conversion["layer"], "config": config})
        if missing := _convert_again(layer, found):
            change_class(layer, Unfinished)
            vars(layer)["_waiting"] = missing
        return layer


class Unfinished:
    """A loaded layer that makes its inner layers, which are to be converted, in its first call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer: Any = self
        outputs = super().__call__(*args, **kwargs)  # type: ignore[misc]
        missing = _convert_again(layer, vars(layer).pop("_waiting"))
        change_class(layer)
        if missing:
            raise ValueError(f"layer {layer.name}: no dropout at {missing}, where it was saved")
        return outputs


def alphas(layer: Any) -> dict[str, float]:
    """Return the alphas of a layer by option; ``""`` stands for the layer as a whole."""
    if isinstance(layer, Converted) and isinstance(layer, QSD):
        return {"": layer.alpha}
    inner = dropout_layer(layer)
    found = getattr(layer, "_alphas", {})
    return {"dropout": inner.alpha} if found and isinstance(inner, QSD) else dict(found)


def swap_layer(layer: Any, alpha: float) -> None:
    """Turn a dropout layer into one of QSD, of the same rate."""
    into = LAYERS[type(layer)]
    before = set(vars(layer))
    change_class(layer, into)
    layer.p_broadcast_dims = layer.broadcast_dims = ()
    if issubclass(into, Spatial):
        layer.data_format = vars(layer).get("data_format", "channels_last")
        layer.broadcast_dims = into._spatial_axes(layer.data_format)
    layer._begin(Dilution(vars(layer)["rate"], alpha))
    layer._added = (*(set(vars(layer)) - before), "_added")


def swap_option(layer: Any, option: str, alpha: float) -> None:
    """Turn an option of a layer into QSD, of the same rate."""
    if "_alphas" not in vars(layer):
        change_class(layer, mixin_of(layer))
        vars(layer).update(_alphas={}, _added=("_alphas", "_diluted_masks", "_added"))
    layer._alphas[option] = alpha
    if inner := dropout_layer(layer):
        swap_layer(inner, alpha)


def mark_owners(model: Any) -> None:
    """Make layers that contain something converted say so when they are saved.

    Keras's own models need not: their configuration contains that of their layers.
    """
    for node in walk(model):
        keras_model = isinstance(node.layer, keras.Model) and _is_keras(type(node.layer))
        within = any(isinstance(part.layer, Converted) for part in walk(node.layer))
        if within and not keras_model and not isinstance(node.layer, Converted):
            change_class(node.layer)


def _is_keras(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "keras"


def change_class(layer: Any, base: type | None = None) -> None:
    """Change the class of a layer: to QSD, or to its own with the methods of ``base``."""
    original: type = getattr(type(layer), "_original", type(layer))
    mixin = mixin_of(layer) if "_alphas" in vars(layer) else None
    _set_class(layer, _class_of(original, *(each for each in (base, mixin) if each)))


@functools.cache
def _class_of(original: type, *bases: type) -> type:
    if bases and issubclass(bases[0], QSD):
        name, bases = bases[0].__name__, (Converted, *bases)
    else:  # weights are saved under the name of the class
        name, bases = original.__name__, (Converted, *bases, original)
    cls = types.new_class(name, bases, exec_body=lambda body: body.update(_original=original))
    # All under one name, since any of these classes reads every configuration.
    return keras.saving.register_keras_serializable("quantal", "Converted")(cls)


def restore(layer: Any) -> None:
    """Give a layer its class back, and remove the attributes that conversion has added."""
    added = layer._added
    _restore_class(layer)
    for name in (*added, "_waiting"):
        vars(layer).pop(name, None)


def _restore_class(layer: Any) -> None:
    if isinstance(layer, QSD):
        layer.__dict__["rate"] = layer.rate  # an attribute of Dropout, and a property of QSD
    _set_class(layer, type(layer)._original)


def _set_class(layer: Any, cls: type) -> None:
    object.__setattr__(layer, "__class__", cls)  # Keras's own would try to track the class


@contextmanager
def _as_it_was(layer: Any) -> Iterator[None]:
    parts = [node.layer for node in walk(layer) if isinstance(node.layer, Converted)]
    classes = [type(part) for part in parts]
    for part in parts:
        _restore_class(part)
    try:
        yield
    finally:
        for part, cls in zip(parts, classes, strict=True):
            _set_class(part, cls)


@contextmanager
def put_back(model: Any) -> Iterator[None]:
    """Restore the class and the attributes of every layer at the end of a block."""
    before = [
        (node.layer, type(node.layer), dict(vars(node.layer)), alphas(node.layer))
        for node in walk(model)
    ]
    try:
        yield
    finally:
        for layer, cls, attributes, by_option in before:
            _set_class(layer, cls)
            vars(layer).clear()
            vars(layer).update(attributes)
            if "_alphas" in attributes:
                attributes["_alphas"].clear()
                attributes["_alphas"].update(by_option)


def _convert_again(layer: Any, found: list[Any]) -> list[Any]:
    """Convert what a configuration says, and return what is not there."""
    nodes = {node.steps: node.layer for node in walk_without_options(layer)}
    missing = []
    for steps, by_option in found:
        part: Any = nodes.get(tuple(steps))
        for option, written in by_option.items():
            alpha = alpha_from_json(written)
            if type(part) not in LAYERS if option == "" else mixin_of(part) is None:
                missing.append([steps, {option: written}])
            elif option == "":
                swap_layer(part, alpha)
            else:
                swap_option(part, option, alpha)
    mark_owners(layer)
    return missing
