"""QSD in layers that drop units by an option of their own, ``dropout=``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

from quantal.dilution import Dilution
from quantal.keras._backend import backend
from quantal.keras._draw import RandomSource
from quantal.keras._layers import QSD
from quantal.keras._private_api import CellHook, HeadsHook, ScoresHook, dropout_layer, is_cell
from quantal.keras._walk import Node, walk

__all__ = ["DilutedCell", "DilutedHeads", "Rerouted", "gate_masks", "mixin_of", "rates"]
__all__ += ["walk_without_options"]


class Rerouted:
    """What a mixin adds to the class of a layer: an alpha for each option that is converted."""

    _alphas: dict[str, float]

    @staticmethod
    def missing(layer: Any) -> str:
        """Return why an option of this layer is out of reach, or nothing."""
        return ""

    def _dilute(self, option: str, x: Any) -> Any:
        layer: Any = self
        law = Dilution(getattr(layer, option), self._alphas[option])
        generator = layer.seed_generator
        seed = getattr(layer, "seed", generator)  # which Attention of Keras 3.5 does not keep
        return backend.dilute(x, law, RandomSource(seed, generator))


class DilutedCell(CellHook, Rerouted):
    """A recurrent cell with masks of QSD, each for all time steps, like Keras's own."""

    def _change_mask(self, option: str, step_input: Any, native: Callable[[Any], Any]) -> Any:
        if option not in self._alphas or getattr(self, option) == 0:
            return native(step_input)
        masks = self._masks()
        if option not in masks:
            draw = lambda ones: self._dilute(option, ones)  # noqa: E731
            masks[option] = gate_masks(self, step_input, draw)
        return masks[option]

    def _forget_mask(self, option: str) -> None:
        self._masks().pop(option, None)

    def _masks(self) -> dict[str, Any]:
        """Return the masks of the current sequence; Keras need not track them."""
        masks: dict[str, Any] = vars(self).setdefault("_diluted_masks", {})
        return masks


def gate_masks(cell: Any, step_input: Any, draw: Callable[[Any], Any]) -> Any:
    """Return the masks of a cell: one for all its gates or, in a list, one for each."""
    count = getattr(cell, "dropout_mask_count", None)
    ones = ops.ones_like(step_input)
    return draw(ones) if count is None else [draw(ones) for _ in range(count)]


class DilutedAttention(ScoresHook, Rerouted):
    """Attention, with dot products or additive, whose weights are diluted."""

    def _change_weights(self, weights: Any) -> Any:
        return self._dilute("dropout", weights) if "dropout" in rates(self) else weights


class DilutedHeads(HeadsHook, Rerouted):
    """Attention of many heads, whose dropout is a layer."""

    def _change_dropout(self, layer: Any) -> None:
        from quantal.keras._swap import swap_layer

        swap_layer(layer, self._alphas["dropout"])


def mixin_of(layer: Any) -> type[Rerouted] | None:
    """Return the mixin that turns a layer's options into QSD; None if it has no such option."""
    if is_cell(layer):
        return DilutedCell
    if isinstance(layer, keras.layers.Attention):
        return DilutedAttention
    if isinstance(layer, keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention):
        return DilutedHeads
    return None


def rates(layer: Any) -> dict[str, float]:
    """Return the rates of a layer's options, without those that are 0."""
    mixin = mixin_of(layer)
    if mixin is None:
        return {}
    if mixin is DilutedCell:
        found = {name: getattr(layer, name) for name in ("dropout", "recurrent_dropout")}
    else:
        inner = dropout_layer(layer)
        if type(inner) is QSD:  # the user's own
            return {}
        found = {"dropout": layer.dropout if inner is None else inner.rate}
    return {name: rate for name, rate in found.items() if rate > 0}


def walk_without_options(layer: Any) -> Iterator[Node]:
    """Yield what `walk` does, without the dropout layers that stand for a layer's option."""
    options = set()
    for node in walk(layer):
        inner = dropout_layer(node.layer)
        if mixin_of(node.layer) is DilutedHeads and type(inner) is not QSD:
            options.add(id(inner))
        if id(node.layer) not in options:
            yield node
