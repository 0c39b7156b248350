"""Every private name of Keras that the package uses, in one place.

For each: the versions in which it was seen, and what happens when it is gone. No import fails
because of one, and `convert` names the dropout that it cannot reach without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras import ops

__all__ = [
    "BOOKKEEPING",
    "CellHook",
    "HeadsHook",
    "ScoresHook",
    "build_now",
    "children",
    "dropout_layer",
    "is_cell",
    "parts",
    "unpickle_model",
]

_GONE = f"Keras {keras.__version__} has no {{}}, where its dropout was"

BOOKKEEPING = {"_layers", "_operations", "_operations_by_depth", "_nodes", "_nodes_by_depth"}
"""Where Keras keeps the layers of a model under names that no user has given.

Seen in 3.5 to 3.15. Gone: nothing is lost. A new list of this kind would show in the names of
sites, where the user's own attribute should.
"""


def children(layer: Any) -> list[Any]:
    """Return the layers directly within a layer, in the order in which it got them.

    ``Layer._layers``, seen in 3.5 to 3.15. Gone: ``model.layers``, or the layers among the
    attributes, which are the same ones, though not always in the same order.
    """
    if hasattr(layer, "_layers"):
        return list(layer._layers)
    if isinstance(layer, keras.Model):
        return list(layer.layers)
    found = {id(part): part for _, part in parts(layer)}
    return list(found.values())


def parts(layer: Any) -> Iterator[tuple[str, Any]]:
    """Yield the layers among the attributes of a layer, with the names of these."""
    attributes = dict(vars(layer))
    if hasattr(layer, "named_children"):  # on the torch backend, where a layer is a torch module
        attributes.update(layer.named_children())
    for name, value in attributes.items():
        if isinstance(value, keras.layers.Layer):
            yield name, value
        elif name not in BOOKKEEPING and isinstance(value, list | tuple | dict):
            items: Any = value.items() if isinstance(value, dict) else enumerate(value)
            for key, item in items:
                if isinstance(item, keras.layers.Layer):
                    yield f"{name}/{key}", item


def build_now(layer: Any) -> None:
    """Mark a layer without weights as built.

    ``Layer._build_at_init``, seen in 3.10 to 3.15. Gone: the public attribute is set, as Keras's
    own Dropout did in 3.8 and 3.9.
    """
    if hasattr(layer, "_build_at_init"):
        layer._build_at_init()
    else:
        layer.built = True


def is_cell(layer: Any) -> bool:
    """Return whether a layer is a recurrent cell that drops units: Keras's, or one derived from it.

    ``DropoutRNNCell.get_dropout_mask``, seen in 3.5 to 3.15. It has no underscore, but Keras does
    not export the class. Gone: Keras's own three cells are still known, and see `CellHook`.
    """
    own = keras.layers.LSTMCell | keras.layers.GRUCell | keras.layers.SimpleRNNCell
    return hasattr(layer, "get_dropout_mask") or isinstance(layer, own)


class CellHook:
    """A mixin for recurrent cells, whose masks pass through `_change_mask`.

    The methods of ``DropoutRNNCell``, seen in 3.5 to 3.15. Gone: its dropout is out of reach.
    """

    @staticmethod
    def missing(layer: Any) -> str:
        """Return why the hook cannot work, or nothing."""
        options = ("dropout", "recurrent_dropout")
        names = [f"{verb}_{option}_mask" for verb in ("get", "reset") for option in options]
        gone = (name for name in names if not hasattr(layer, name))
        return next((_GONE.format(f"DropoutRNNCell.{name}") for name in gone), "")

    def get_dropout_mask(self, step_input: Any) -> Any:
        """Return the mask of the inputs."""
        cell: Any = super()
        return self._change_mask("dropout", step_input, cell.get_dropout_mask)

    def get_recurrent_dropout_mask(self, step_input: Any) -> Any:
        """Return the mask of the state."""
        cell: Any = super()
        return self._change_mask("recurrent_dropout", step_input, cell.get_recurrent_dropout_mask)

    def reset_dropout_mask(self) -> None:
        """Forget the mask of the inputs, before the next sequence."""
        cell: Any = super()
        cell.reset_dropout_mask()
        self._forget_mask("dropout")

    def reset_recurrent_dropout_mask(self) -> None:
        """Forget the mask of the state, before the next sequence."""
        cell: Any = super()
        cell.reset_recurrent_dropout_mask()
        self._forget_mask("recurrent_dropout")

    def _change_mask(self, option: str, step_input: Any, native: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def _forget_mask(self, option: str) -> None:
        raise NotImplementedError


class ScoresHook:
    """A mixin for attention whose weights pass through `_change_weights` in training.

    ``Attention._apply_scores``, seen in 3.5 to 3.15. Gone: its dropout is out of reach.
    """

    @staticmethod
    def missing(layer: Any) -> str:
        """Return why the hook cannot work, or nothing."""
        return "" if hasattr(layer, "_apply_scores") else _GONE.format("Attention._apply_scores")

    def _apply_scores(
        self, scores: Any, value: Any, scores_mask: Any = None, training: bool = False
    ) -> Any:
        layer: Any = super()
        applied, weights = layer._apply_scores(scores, value, scores_mask)
        changed = self._change_weights(weights) if training else weights
        return (applied if changed is weights else ops.matmul(changed, value)), changed

    def _change_weights(self, weights: Any) -> Any:
        raise NotImplementedError


def dropout_layer(layer: Any) -> Any:
    """Return the dropout layer of attention with many heads, or None before it is built.

    ``MultiHeadAttention._dropout_layer`` and that of ``GroupQueryAttention``, seen in 3.5 to 3.15.
    Gone: their dropout is out of reach.
    """
    return getattr(layer, "_dropout_layer", None)


class HeadsHook:
    """A mixin for attention with many heads, whose dropout layer is made by ``build``.

    Where `dropout_layer` finds none, a layer that was converted before it was built raises when it
    is built: otherwise it would drop units as before.
    """

    @staticmethod
    def missing(layer: Any) -> str:
        """Return why the hook cannot work, or nothing."""
        gone = layer.built and dropout_layer(layer) is None
        return _GONE.format(f"{type(layer).__name__}._dropout_layer") if gone else ""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_dropout_layer":
            self._change_dropout(value)
        elif name == "built" and (reason := self.missing(self)):
            raise RuntimeError(f"{self} cannot be converted: {reason}")

    def _change_dropout(self, layer: Any) -> None:
        raise NotImplementedError


def unpickle_model(buffer: Any) -> Any:
    """Return the model that Keras has pickled.

    ``Model._unpickle_model``, seen in 3.5 to 3.15: a method of the class, and since pickle cannot
    find the classes that `convert` makes, it is called on ``keras.Model``. Gone: this says so.
    """
    if not hasattr(keras.Model, "_unpickle_model"):
        raise NotImplementedError(
            f"Keras {keras.__version__} pickles models in a way that quantal does not know: "
            "save the converted model with model.save, or revert it before it is pickled"
        )
    return keras.Model._unpickle_model(buffer)
