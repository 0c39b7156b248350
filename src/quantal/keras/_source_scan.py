"""Dropout in a layer's own code, found in the source: to swap layers does not change it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from types import FunctionType
from typing import Any, NamedTuple

import keras

from quantal._source_scan import UNKNOWN, Scanner, SourceCall
from quantal.keras._walk import walk

__all__ = ["NATIVE", "CodeReader", "InCode"]

NATIVE = (keras.layers.Dropout, keras.layers.GaussianDropout, keras.layers.AlphaDropout)
"""Keras's own layers that change units at random."""

# keras.random.dropout, tf.nn.experimental.stateless_dropout, torch.nn.functional.dropout2d …
_FUNCTION = re.compile(r"^(\w*_)?dropout(\dd|_v2)?_?$")
_MAKING = ("__init__", "__new__", "__post_init__")
_LATER = "made by build: build the model first, by a call or build(input_shape)"


class InCode(NamedTuple):
    """Dropout in the code of a layer: what is called there, its rate, why it cannot be swapped.

    ``lines`` are those of the function that draw, or None, if that may be any of them.
    """

    kind: str
    rate: float
    reason: str
    function: FunctionType
    lines: range | None = None


class CodeReader:
    """Find dropout in the code of layers.

    Parameters
    ----------
    layers : iterable of layers
        All layers of the model: dropout layers that are none of these are found in the code, too.
    """

    def __init__(self, layers: Iterable[Any]) -> None:
        self._tracked = {id(layer) for layer in layers}
        self._running = _scanner((*_MAKING, "build"))
        self._building = _scanner(_MAKING)

    def __call__(self, layer: Any) -> Iterator[InCode]:
        """Yield what is in the code of one layer."""
        owner = layer.function if isinstance(layer, keras.layers.Lambda) else layer
        place = "a Lambda" if owner is not layer else type(layer).__name__
        lines = set()
        for call in self._running.calls(owner):
            lines.add((call.function, call.line))
            yield from self._in_call(call)
        for function in self._running.unread(owner):
            yield from _without_source(function, place)
        if not layer.built:
            for call in self._building.calls(owner):
                if _makes_dropout(call) and (call.function, call.line) not in lines:
                    yield InCode(call.written, _rate(call, 0), _LATER, call.function)

    def _in_call(self, call: SourceCall) -> Iterator[InCode]:
        if _makes_dropout(call):
            reason = f"a layer made in {call.where}"
            yield InCode(call.written, _rate(call, 0), reason, call.function)
        elif isinstance(call.target, keras.layers.Layer):
            if id(call.target) not in self._tracked:
                for part in walk(call.target):
                    if isinstance(part.layer, NATIVE) and not hasattr(part.layer, "alpha"):
                        reason = f"a layer that Keras does not track, called in {call.where}"
                        kind = type(part.layer).__name__
                        yield InCode(kind, part.layer.rate, reason, call.function, _lines(call))
        elif not call.followed and _is_dropout(call):
            reason = f"a function called in {call.where}"
            yield InCode(call.written, _rate(call, 1), reason, call.function, _lines(call))


def _scanner(construction: tuple[str, ...]) -> Scanner:
    return Scanner(
        libraries=frozenset({"keras", "quantal", "tensorflow", "torch", "jax", "flax"}),
        apart=(keras.layers.Layer,),
        entries=("call", "__call__"),
        construction=construction,
        assume={"training": True},
    )


def _makes_dropout(call: SourceCall) -> bool:
    return isinstance(call.target, type) and issubclass(call.target, NATIVE)


def _is_dropout(call: SourceCall) -> bool:
    """Return whether a function drops units, judging by its name.

    An unknown function counts only if it is called as ``package.dropout``: a plain variable of that
    name, or an attribute of self, is usually a layer.
    """
    if call.target is not UNKNOWN:
        return _FUNCTION.match(getattr(call.target, "__name__", "")) is not None
    owner, _, name = call.written.rpartition(".")
    return owner not in ("", "self") and _FUNCTION.match(name) is not None


def _without_source(function: FunctionType, place: str) -> Iterator[InCode]:
    """Yield the dropout that a function without a source mentions, one typed in or loaded say."""
    for name in function.__code__.co_names:
        if _FUNCTION.match(name):
            reason = f"a function called in {place}, which has no source"
            yield InCode(name, math.nan, reason, function)


def _lines(call: SourceCall) -> range | None:
    """Return the lines of a call; None for what is passed on, which may be called on any line."""
    last = call.node.end_lineno or call.line
    return None if call.passed_on else range(call.line, last + 1)


def _rate(call: SourceCall, position: int) -> float:
    given = call.argument(position, "rate", "p")
    return math.nan if given is None else given.number
