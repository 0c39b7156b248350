"""Dropout in a layer's own code, which no change of layers can reach: found in the source."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import re
import sys
import textwrap
from typing import Any, NamedTuple

import keras

__all__ = ["Call", "calls"]

_FUNCTION = re.compile(r"(^|[._])dropout(\dd)?$")
_LIBRARIES = {"keras", "quantal", "tensorflow", "torch", "jax", "flax", "builtins", "abc"}
_LATER = "made by build: build the model first, by a call or build(input_shape)"


class Call(NamedTuple):
    """One call of a function such as ``keras.random.dropout``."""

    function: str
    rate: float
    reason: str


def calls(layer: Any) -> list[Call]:
    """Return the calls of dropout functions in a layer's code, as far as it can be read.

    Functions are recognised by their name; calls of layers, ``self.dropout(x)``, are none. In a
    layer that is not built yet, dropout layers made by its ``build`` are found, too.
    """
    if isinstance(layer, keras.layers.Lambda):
        names = getattr(getattr(layer.function, "__code__", None), "co_names", ())
        return [_call(n, math.nan, "in a Lambda") for n in names if _FUNCTION.search(n)]
    classes = [cls for cls in type(layer).__mro__ if cls.__module__.split(".")[0] not in _LIBRARIES]
    found = [call for cls in classes for call in _in_class(cls)]
    return [c for c in found if not (layer.built and c.reason == _LATER)]


def _call(function: str, rate: float, where: str) -> Call:
    return Call(function, rate, f"a function called {where}")


@functools.cache
def _in_class(cls: type) -> tuple[Call, ...]:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError, SyntaxError):  # typed in, or compiled
        return ()
    known = set(vars(sys.modules[cls.__module__])) | _imported(tree)
    found = []
    for method in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(method):
            name = _name(node.func) if isinstance(node, ast.Call) else ""
            if name.split(".")[0] not in known:  # a variable: layers are called by these
                continue
            if _FUNCTION.search(name):
                found.append(_call(name, _rate(node), f"in {cls.__name__}.{method.name}"))
            elif method.name == "build" and name.endswith("Dropout"):
                found.append(Call(name, _rate(node), _LATER))
    return tuple(found)


def _imported(tree: ast.AST) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = [alias.asname or alias.name for node in imports for alias in node.names]
    return {name.split(".")[0] for name in names}


def _name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return f"{_name(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def _rate(call: Any) -> float:
    given = [k.value for k in call.keywords if k.arg in ("rate", "p")]
    first = 0 if _name(call.func).endswith("Dropout") else 1
    given += call.args[first : first + 1]
    value = given[0].value if given and isinstance(given[0], ast.Constant) else None
    return float(value) if isinstance(value, int | float) else math.nan
