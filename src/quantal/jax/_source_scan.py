"""Dropout that a model's own code calls by name: no module to swap, but it can be found and named.

That is an attention function called with a ``dropout_rate``, or a dropout layer made and called in
the same expression. The names in the source are looked up where the code would find them.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import textwrap
from collections.abc import Callable, Collection, Iterator
from types import FunctionType
from typing import Any

from quantal.sites import Site

__all__ = ["literal_dropout"]

# The libraries' own layers are known: what they offer is swapped or named by itself.
_LIBRARIES = ("flax", "equinox", "jax", "quantal", "builtins")


def literal_dropout(
    name: str, kind: type, layers: Collection[Any], functions: Collection[Any]
) -> list[Site]:
    """Return the sites that the code of a class spells out.

    Parameters
    ----------
    name : str
        The path of the module of this class.
    kind : type
        Its class.
    layers : collection of type
        Dropout layers: found where they are made and called at once.
    functions : collection of function
        Found where they are called with a ``dropout_rate``.
    """
    return [
        Site(name, found, rate, unreached=f"{found} is called literally in {where}")
        for found, rate, where in _found(kind, tuple(layers), tuple(functions))
    ]


@functools.cache
def _found(
    kind: type, layers: tuple[Any, ...], functions: tuple[Any, ...]
) -> tuple[tuple[str, float, str], ...]:
    return tuple(
        (target.__name__, rate, f"{function.__qualname__}, line {line}")
        for function in _own_functions(kind)
        for target, rate, line in _calls(function, layers, functions)
    )


def _own_functions(kind: type) -> Iterator[FunctionType]:
    """Yield the functions that a class and its parents define, outside of the libraries."""
    for parent in kind.__mro__:
        if parent.__module__.partition(".")[0] not in _LIBRARIES:
            for value in vars(parent).values():
                # Both libraries wrap what they find in a class.
                unwrapped = inspect.unwrap(value) if callable(value) else value
                if isinstance(unwrapped, FunctionType):
                    yield unwrapped


def _calls(
    function: FunctionType, layers: tuple[Any, ...], functions: tuple[Any, ...]
) -> Iterator[tuple[Any, float, int]]:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):  # no source, or only a part of an expression
        return
    find = _scope(function)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        line = first + call.lineno - 1
        made = call.func
        if isinstance(made, ast.Call) and _among(layer := _resolve(made.func, find), layers):
            rates = [*made.args[:1], *(k.value for k in made.keywords if k.arg in ("rate", "p"))]
            yield layer, _constant(rates[0]) if rates else math.nan, line
        elif _among(target := _resolve(made, find), functions):
            for keyword in call.keywords:
                rate = _constant(keyword.value)
                if keyword.arg == "dropout_rate" and rate != 0:
                    yield target, rate, line


def _scope(function: FunctionType) -> Callable[[str], Any]:
    enclosing = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))

    def find(name: str) -> Any:
        if name in enclosing:
            try:
                return enclosing[name].cell_contents
            except ValueError:  # not filled yet
                return None
        return function.__globals__.get(name, getattr(builtins, name, None))

    return find


def _resolve(node: ast.expr, find: Callable[[str], Any]) -> Any:
    if isinstance(node, ast.Name):
        return find(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, find)
        # Only of modules: an attribute of an object could run code.
        return getattr(owner, node.attr, None) if inspect.ismodule(owner) else None
    return None


def _among(value: Any, targets: tuple[Any, ...]) -> bool:
    return any(value is target for target in targets)  # an array has no plain ==


def _constant(node: ast.expr) -> float:
    value = getattr(node, "value", None)
    return float(value) if isinstance(value, int | float) else math.nan
