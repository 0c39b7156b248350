"""Dropout that a model's own code calls: there is no module to swap, but it is found and named.

It is an attention function that is called with a ``dropout_rate``; a dropout layer that is made
where it is used, outside of the model's constructor; or a layer that is kept where the library does
not look: in a closure, a global variable or a static field.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Collection, Iterator
from typing import Any

from quantal._selection import Place
from quantal._source_scan import UNKNOWN, Scanner, SourceCall
from quantal.sites import Site

__all__ = ["LIBRARIES", "DropoutScan"]

# Code of these is not read: what drops units in their own layers is known.
LIBRARIES = frozenset({"chex", "equinox", "flax", "haiku", "jax", "optax", "orbax", "quantal"})


class DropoutScan:
    """Reads the code of a model's modules; make a new one for each walk through a model.

    Parameters
    ----------
    modules : type
        The library's base class of modules, which are read one by one.
    layers : tuple of type
        Dropout layers.
    functions : tuple of function
        Functions that drop units if they are called with a ``dropout_rate``.
    """

    def __init__(
        self, modules: type, layers: tuple[type, ...] = (), functions: tuple[Any, ...] = ()
    ) -> None:
        self._scanner = Scanner(LIBRARIES, apart=(modules,), entries=("__call__",))
        self._layers = layers
        self._functions = functions

    def places(self, name: str, module: Any, known: Collection[int] = ()) -> Iterator[Place]:
        """Walk through the dropout in the code of a module, or of a class of them.

        Parameters
        ----------
        name : str
            The path of the module.
        module
            The module or the class.
        known : collection of int
            The ``id`` of every layer that is part of the model.
        """
        for call in self._scanner.calls(module):
            if isinstance(call.target, self._layers):
                own = type(call.target).__module__.startswith("quantal.")
                if not (own or id(call.target) in known):
                    kind = type(call.target).__name__
                    reason = f"{call.written} in {call.where} is no part of the model"
                    site = Site(name, kind, _rate(call.target), unreached=reason)
                    yield Place(site, module, call)
            elif (rate := self._rate_of(call)) is not None:
                kind = call.target.__name__
                reason = f"{kind} is called directly in {call.where}"
                yield Place(Site(name, kind, rate, unreached=reason), module, call)

    def _rate_of(self, call: SourceCall) -> float | None:
        """Return the rate at which a call drops units: NaN if unknown, None if it does not."""
        if any(call.target is layer for layer in self._layers):
            made = call.argument(0, "rate", "p")
            return math.nan if made is None else made.number
        if any(call.target is function for function in self._functions):
            names = list(inspect.signature(call.target).parameters)
            passed = call.argument(names.index("dropout_rate"), "dropout_rate")
            # An attention_fn that is handed on is given the rate by the layer that gets it.
            if passed is None or (call.passed_on and passed.value is UNKNOWN):
                return None
            return None if passed.number == 0 else passed.number
        return None


def _rate(layer: Any) -> Any:
    return getattr(layer, "rate", getattr(layer, "p", math.nan))
