"""Dropout that a model's own code calls by name: no module to swap, but it can be found and named.

That is an attention function called with a ``dropout_rate``, or a dropout layer that is made where
it is used, outside of the model's constructor.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

from quantal._selection import Place
from quantal._source_scan import Scanner, SourceCall
from quantal.sites import Site

__all__ = ["DropoutScan"]

# The libraries' own layers are known: what they offer is swapped or named by itself.
_LIBRARIES = frozenset({"chex", "equinox", "flax", "haiku", "jax", "optax", "orbax", "quantal"})


class DropoutScan:
    """How the code of a model's modules is read; to be made anew for each walk through a model.

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
        self._scanner = Scanner(_LIBRARIES, apart=(modules,), entries=("__call__",))
        self._layers = layers
        self._functions = functions

    def places(self, name: str, module: Any) -> Iterator[Place]:
        """Walk through the dropout in the code of a module, or of a class of them."""
        for call in self._scanner.calls(module):
            rate = self._rate(call)
            if rate is not None:
                kind = call.target.__name__
                reason = f"{kind} is called literally in {call.where}"
                yield Place(Site(name, kind, rate, unreached=reason), module, call)

    def _rate(self, call: SourceCall) -> float | None:
        """Return with which rate a call drops units, NaN if that cannot be told; None: not."""
        if any(call.target is layer for layer in self._layers):
            made = call.argument(0, "rate", "p")
            return math.nan if made is None else made.number
        if any(call.target is function for function in self._functions):
            names = list(inspect.signature(call.target).parameters)
            passed = call.argument(names.index("dropout_rate"), "dropout_rate")
            return None if passed is None or passed.number == 0 else passed.number
        return None
