"""The layers of a model, each with its place in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras

__all__ = ["Node", "forget_traces", "walk"]

# Where Keras keeps the layers of a model under names that a user has not given.
_BOOKS = {"_layers", "_operations", "_operations_by_depth", "_nodes", "_nodes_by_depth"}


class Node(NamedTuple):
    """One layer: its path in names, for people, and in positions, for files."""

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
        waiting += reversed(list(_children(node)))


def _children(node: Node) -> Iterator[Node]:
    names = dict(_attributes(node.layer))
    for step, child in enumerate(node.layer._layers):
        # Layers of a graph have names of their own; others are known by the attribute.
        name = names.get(id(child), child.name)
        yield Node(f"{node.name}/{name}".lstrip("/"), (*node.steps, step), child)


def _attributes(layer: Any) -> Iterator[tuple[int, str]]:
    # On the torch backend a layer is a torch module, which keeps its parts in _modules.
    for name, value in {**vars(layer), **getattr(layer, "_modules", {})}.items():
        if isinstance(value, keras.layers.Layer):
            yield id(value), name
        elif name not in _BOOKS and isinstance(value, list | tuple | dict):
            parts: Iterable[Any] = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((id(part), f"{name}/{key}") for key, part in parts)


def forget_traces(model: Any) -> None:
    """Have fit, evaluate and predict compile again: what they traced holds for other layers."""
    for node in walk(model):
        if isinstance(node.layer, keras.Model):
            node.layer.train_function = None
            node.layer.test_function = None
            node.layer.predict_function = None
