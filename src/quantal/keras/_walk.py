"""The layers of a model, each with its path."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras

from quantal._errors import wrong_type
from quantal.keras._private_api import children, parts

__all__ = ["Node", "check_model", "forget_traces", "walk"]


class Node(NamedTuple):
    """One layer, with its path in names, for people, and in positions, for saved files."""

    name: str
    steps: tuple[int, ...]
    layer: Any


def walk(layer: Any) -> Iterator[Node]:
    """Yield a layer and all within it, each once, however often it is used."""
    seen: set[int] = set()
    waiting = [Node("", (), layer)]
    while waiting:
        node = waiting.pop()
        if id(node.layer) in seen:
            continue
        seen.add(id(node.layer))
        yield node
        waiting += reversed(list(_within(node)))


def _within(node: Node) -> Iterator[Node]:
    names = {id(part): name for name, part in parts(node.layer)}
    for step, child in enumerate(children(node.layer)):
        # Layers of a graph have names of their own; others are known by the attribute.
        name = names.get(id(child), child.name)
        yield Node(f"{node.name}/{name}".lstrip("/"), (*node.steps, step), child)


def check_model(model: Any, kind: type = keras.layers.Layer) -> None:
    """Refuse what is no model, or no layer."""
    if not isinstance(model, kind):
        layer = kind is keras.layers.Layer
        expected = "a keras.Model or keras.layers.Layer" if layer else "a keras.Model"
        raise wrong_type("model", expected, type(model))


def forget_traces(model: Any) -> None:
    """Make fit, evaluate and predict compile again, since layers have changed.

    Another thread may be in one of them, so each function is replaced by a new one, not by None.
    """
    for node in walk(model):
        if not isinstance(node.layer, keras.Model):
            continue
        for kind in ("train", "test", "predict"):
            make = getattr(node.layer, f"make_{kind}_function")
            if getattr(node.layer, f"{kind}_function") is None:
                continue
            if "force" in inspect.signature(make).parameters:
                make(force=True)
            else:  # a method of the user's model, without that parameter
                setattr(node.layer, f"{kind}_function", None)
