"""Layers that change their class: the same object, with its weights, name and place in a graph.

A converted layer is saved as what it was, with the alphas of all that is converted within it.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from quantal.dilution import Dilution
from quantal.keras._find_sites import walk
from quantal.keras._layers import QSD
from quantal.keras._reroute import mixin_of, own
from quantal.keras._spatial import Spatial, SpatialQSD1D, SpatialQSD2D, SpatialQSD3D

__all__ = [
    "LAYERS",
    "Converted",
    "alphas",
    "dilute_layer",
    "dilute_option",
    "mark_owners",
    "restore",
]

LAYERS: dict[type, type[QSD]] = {
    keras.layers.Dropout: QSD,
    keras.layers.SpatialDropout1D: SpatialQSD1D,
    keras.layers.SpatialDropout2D: SpatialQSD2D,
    keras.layers.SpatialDropout3D: SpatialQSD3D,
}


@keras.saving.register_keras_serializable(package="quantal")
class Converted:
    """A layer that `convert` has changed."""

    _original: type
    _added: tuple[str, ...] = ()
    _waiting: tuple[Any, ...] = ()

    def get_config(self) -> dict[str, Any]:
        """Return the configuration of the original layer, and what to convert in it."""
        found = [[list(node.steps), alphas(node.layer)] for node in own(self)]
        with _as_it_was(self):
            layer = keras.saving.serialize_keras_object(self)
        layer.pop("compile_config", None)  # Keras saves it beside this configuration, too
        return {"layer": layer, "alphas": [*(each for each in found if each[1]), *self._waiting]}

    def __reduce__(self) -> Any:
        # Keras pickles the file of a model, and a method of its class to read it: any model's does.
        model: Any = super()
        return keras.Model._unpickle_model, model.__reduce__()[1]

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make the original layer, and convert it again."""
        original, found = config["layer"], config["alphas"]
        # What others have set in the configuration, as Bidirectional does, is meant for the layer.
        changes = {key: config[key] for key in config.keys() - {"layer", "alphas"}}
        layer = keras.saving.deserialize_keras_object(
            {**original, "config": {**original["config"], **changes}}
        )
        if missing := _apply(layer, found):
            become(layer, Unfinished)
            vars(layer)["_waiting"] = missing
        return layer


class Unfinished:
    """A loaded layer that makes layers to be converted only when it is called first."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer: Any = self
        outputs = super().__call__(*args, **kwargs)  # type: ignore[misc]
        missing = _apply(layer, vars(layer).pop("_waiting"))
        become(layer)
        if missing:
            raise ValueError(f"layer {layer.name}: no dropout at {missing}, where it was saved")
        return outputs


def alphas(layer: Any) -> dict[str, float]:
    """Return the alphas of a layer by option, the option of a whole layer being ``""``."""
    if isinstance(layer, Converted) and isinstance(layer, QSD):
        return {"": layer.alpha}
    inner = getattr(layer, "_dropout_layer", None)
    found = getattr(layer, "_alphas", {})
    return {"dropout": inner.alpha} if found and isinstance(inner, QSD) else dict(found)


def dilute_layer(layer: Any, dilution: Dilution) -> None:
    """Turn a dropout layer into one of QSD."""
    into = LAYERS[type(layer)]
    before = set(vars(layer))
    become(layer, into)
    layer.p_broadcast_dims = layer.broadcast_dims = ()
    if issubclass(into, Spatial):
        layer.data_format = vars(layer).get("data_format", "channels_last")
        layer.broadcast_dims = into._spatial_axes(layer.data_format)
    layer._begin(dilution)
    layer._added = (*(set(vars(layer)) - before), "_added")


def dilute_option(layer: Any, option: str, alpha: float) -> None:
    """Turn an option of a layer into QSD."""
    if "_alphas" not in vars(layer):
        become(layer, mixin_of(layer))
        vars(layer).update(_alphas={}, _added=("_alphas", "_added"))
    layer._alphas[option] = alpha
    if inner := getattr(layer, "_dropout_layer", None):
        dilute_layer(inner, Dilution(inner.rate, alpha))


def mark_owners(model: Any) -> None:
    """Have layers that contain something converted say so when they are saved.

    Not Keras's own models, whose configuration holds that of their layers.
    """
    for node in walk(model):
        keras_model = isinstance(node.layer, keras.Model) and _is_keras(type(node.layer))
        within = any(isinstance(part.layer, Converted) for part in walk(node.layer))
        if within and not keras_model and not isinstance(node.layer, Converted):
            become(node.layer)


def _is_keras(cls: type) -> bool:
    return cls.__module__.split(".")[0] == "keras"


def become(layer: Any, base: type | None = None) -> None:
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
    # All under one name: whichever class it stands for, it reads every configuration.
    return keras.saving.register_keras_serializable("quantal", "Converted")(cls)


def restore(layer: Any) -> None:
    """Give a layer its class back, and drop what conversion has added."""
    added = layer._added
    _restore_class(layer)
    for name in (*added, "_waiting"):
        vars(layer).pop(name, None)


def _restore_class(layer: Any) -> None:
    if isinstance(layer, QSD):
        layer.__dict__["rate"] = layer.rate  # where Dropout has it, and QSD a property
    _set_class(layer, type(layer)._original)


def _set_class(layer: Any, cls: type) -> None:
    object.__setattr__(layer, "__class__", cls)  # not as the attribute that Keras would track


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


def _apply(layer: Any, found: list[Any]) -> list[Any]:
    """Convert what a configuration says, and return what is not there."""
    nodes = {node.steps: node.layer for node in own(layer)}
    missing = []
    for steps, by_option in found:
        part: Any = nodes.get(tuple(steps))
        for option, alpha in by_option.items():
            if type(part) not in LAYERS if option == "" else mixin_of(part) is None:
                missing.append([steps, {option: alpha}])
            elif option == "":
                dilute_layer(part, Dilution(part.rate, alpha))
            else:
                dilute_option(part, option, alpha)
    mark_owners(layer)
    return missing
