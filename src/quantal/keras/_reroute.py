"""QSD in layers that drop units by an option of their own, ``dropout=``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
from keras import ops

from quantal.dilution import Dilution
from quantal.keras._find_sites import Node, walk
from quantal.keras._layers import QSD, backend

__all__ = ["DilutedAttention", "DilutedCell", "DilutedHeads", "mixin_of", "own", "rates"]


@dataclass(frozen=True)
class _Law:
    """What a backend reads of a QSD layer, for a draw in a layer that is none."""

    dilution: Dilution
    seed: Any
    seed_generator: Any
    p_broadcast_dims: tuple[int, ...] = ()
    _tables: None = None

    @property
    def rate(self) -> float:
        return self.dilution.rate

    @property
    def alpha(self) -> float:
        return self.dilution.alpha


class _Diluted:
    """A layer with an alpha for each option that is converted."""

    _alphas: dict[str, float]

    def _dilute(self, option: str, x: Any) -> Any:
        layer: Any = self
        dilution = Dilution(getattr(layer, option), self._alphas[option])
        generator = layer.seed_generator
        seed = getattr(layer, "seed", generator)  # which Attention of Keras 3.5 does not keep
        return backend.dilute(_Law(dilution, seed, generator), x, ())


class DilutedCell(_Diluted):
    """A recurrent cell with masks of QSD: one for all time steps, as Keras's own."""

    def get_dropout_mask(self, step_input: Any) -> Any:
        self._draw("dropout", step_input)
        return super().get_dropout_mask(step_input)  # type: ignore[misc]

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        self._draw("recurrent_dropout", step_input)
        return super().get_recurrent_dropout_mask(step_input)  # type: ignore[misc]

    def _draw(self, option: str, step_input: Any) -> None:
        """Put masks where the cell keeps those of the current sequence: it then draws none."""
        kept = f"_{option}_mask"
        there = getattr(self, kept, None) is not None
        if there or option not in self._alphas or getattr(self, option) == 0:
            return
        count = getattr(self, "dropout_mask_count", None)  # one mask per gate, or one for all
        masks = [self._dilute(option, ops.ones_like(step_input)) for _ in range(count or 1)]
        setattr(self, kept, masks if count else masks[0])


class DilutedAttention(_Diluted):
    """Attention, with dot products or additive, whose weights are diluted."""

    def _apply_scores(
        self, scores: Any, value: Any, scores_mask: Any = None, training: bool = False
    ) -> Any:
        layer: Any = super()
        applied, weights = layer._apply_scores(scores, value, scores_mask)
        if not training or "dropout" not in rates(self):
            return applied, weights
        weights = self._dilute("dropout", weights)
        return ops.matmul(weights, value), weights


class DilutedHeads(_Diluted):
    """Attention of many heads, whose dropout is a layer that is made by ``build``."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_dropout_layer":
            from quantal.keras._swap import dilute_layer

            dilute_layer(value, Dilution(value.rate, self._alphas["dropout"]))


def mixin_of(layer: Any) -> type[_Diluted] | None:
    """Return what makes a layer's option QSD; None if it has no such option."""
    if hasattr(layer, "get_dropout_mask"):  # of Keras's DropoutRNNCell, which is not public
        return DilutedCell
    if isinstance(layer, keras.layers.Attention):
        return DilutedAttention
    if isinstance(layer, keras.layers.MultiHeadAttention | keras.layers.GroupQueryAttention):
        return DilutedHeads
    return None


def rates(layer: Any) -> dict[str, float]:
    """Return the rates of a layer's options, leaving out 0: that is no dropout."""
    mixin = mixin_of(layer)
    if mixin is None:
        return {}
    if mixin is DilutedCell:
        found = {name: getattr(layer, name) for name in ("dropout", "recurrent_dropout")}
    else:
        inner = getattr(layer, "_dropout_layer", None)
        if type(inner) is QSD:  # the user's own
            return {}
        option = getattr(layer, "_dropout", None)  # its name in MultiHeadAttention
        option = layer.dropout if option is None else option
        found = {"dropout": option if inner is None else inner.rate}
    return {name: rate for name, rate in found.items() if rate > 0}


def own(layer: Any) -> Iterator[Node]:
    """Yield what `walk` does, without the dropout layers that are a layer's option."""
    options = set()
    for node in walk(layer):
        inner = getattr(node.layer, "_dropout_layer", None)
        if mixin_of(node.layer) is DilutedHeads and type(inner) is not QSD:
            options.add(id(inner))
        if id(node.layer) not in options:
            yield node
