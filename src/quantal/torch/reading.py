"""Find dropout that a module's own code draws: calls such as ``F.dropout(x, self.rate)``."""

from __future__ import annotations

import ast
import functools
import inspect
import math
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import nn

from quantal.torch.rerouting import REROUTED

__all__ = ["Call", "calls"]

# Where the rate stands: by these keywords, or else at this position, or else it is that.
_KEYWORDS = ("p", "dropout_p", "dropout")
_POSITIONS = {F.scaled_dot_product_attention: (4, 0.0), F.multi_head_attention_forward: (10, 0.0)}
_OTHER_LAWS = (F.alpha_dropout, F.feature_alpha_dropout, torch.alpha_dropout, torch.feature_dropout)
# Of the attention functions of Hugging Face, those that end in functions of torch.
_ATTENTION = {"eager": F.dropout, "sdpa": F.scaled_dot_product_attention}


class Call(NamedTuple):
    """A call that drops units, in the code of a module.

    Attributes
    ----------
    written : str
        The function, as the code has it.
    rate : float
        The rate; NaN if it cannot be read, as that of a local variable.
    through : str
        The name of torch's function that draws in the end, if it can be rerouted.
    unreached : str
        Why it cannot.
    """

    written: str
    rate: float
    through: str
    unreached: str


class _Seen(NamedTuple):
    """The same in the code of a class, where the rate is but an expression."""

    written: str
    called: Any
    rate: ast.expr


def calls(module: nn.Module) -> list[Call]:
    """Return the calls in a module's forward and in what it calls of its class and file."""
    cls: Any = type(module)
    found = []
    for seen in _seen(cls):
        try:
            rate = float(_value(seen.rate, module))
        except (AttributeError, LookupError, TypeError, ValueError):
            rate = math.nan
        found.append(Call(seen.written, rate, *_end_of(seen, module)))
    return found


def _end_of(seen: _Seen, module: nn.Module) -> tuple[str, str]:
    """Return the function that a call ends in, or why it cannot be rerouted."""
    end = seen.called
    if end is None:
        config = getattr(module, "config", None)
        end = _ATTENTION.get(getattr(config, "_attn_implementation", ""))
    if end in REROUTED:
        return end.__name__, ""
    if end in _OTHER_LAWS:
        return "", "this function follows a law other than dropout's"
    return "", "dropout in the forward code, passed to a function that is not torch's own"


@functools.cache
def _seen(cls: type[nn.Module]) -> tuple[_Seen, ...]:
    return tuple(seen for function in _functions(cls) for seen in _in(function))


def _functions(cls: type[nn.Module]) -> Iterator[FunctionType]:
    """Walk through forward, what it calls of its class, and of the file it stands in."""
    waiting: list[Any] = [cls.forward]
    met = set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if not isinstance(function, FunctionType) or function in met:
            continue
        met.add(function)
        where = function.__module__
        if where.startswith("torch.nn.") and not where.endswith(".dropout"):
            continue  # the other layers of torch that drop units are known by their attributes
        yield function
        for node in ast.walk(_tree(function)):
            match node:
                case ast.Attribute(ast.Name("self"), name):
                    waiting.append(inspect.getattr_static(cls, name, None))
                case ast.Attribute(ast.Call(ast.Name("super")), name):
                    waiting += [base.__dict__.get(name) for base in cls.__mro__]
                case ast.Call(ast.Name(name)):
                    if _nearby(called := function.__globals__.get(name), function):
                        waiting.append(called)


def _nearby(called: Any, function: FunctionType) -> bool:
    """Whether a function is called that stands in the same file."""
    return isinstance(called, FunctionType) and called.__module__ == function.__module__


@functools.cache
def _tree(function: FunctionType) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, or only a part of a statement
        return ast.Module([], [])


def _in(function: FunctionType) -> Iterator[_Seen]:
    for node in ast.walk(_tree(function)):
        if not isinstance(node, ast.Call) or ast.unparse(node.func).startswith(
            ("self.", "super()")
        ):
            continue
        called = _resolved(node.func, function.__globals__)
        given = {k.arg: k.value for k in node.keywords}
        known = called in REROUTED or called in _OTHER_LAWS
        if not (known or {"dropout", "dropout_p"} & given.keys()):
            continue
        if isinstance(called, type) or _nearby(called, function):  # which is read itself
            continue
        position, default = _POSITIONS.get(called, (1, 0.5))
        rates = [given[k] for k in _KEYWORDS if k in given] + node.args[position : position + 1]
        rate = rates[0] if rates else ast.Constant(default)
        if not (isinstance(rate, ast.Constant) and not rate.value):
            yield _Seen(ast.unparse(node.func), called, rate)


def _resolved(node: ast.expr, names: dict[str, Any]) -> Any:
    match node:
        case ast.Name(name):
            return names.get(name)
        case ast.Attribute(value, name):
            return getattr(_resolved(value, names), name, None)
    return None  # a local variable, say


def _value(node: ast.expr, module: nn.Module) -> Any:
    """Return what an expression gives in training, if it is one of the module's attributes."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name("self"):
            return module
        case ast.Attribute(ast.Name("self"), "training"):
            return True
        case ast.Attribute(value, name):
            return getattr(_value(value, module), name)
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test, module) else orelse, module)
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, module)
        case ast.Call(ast.Name("float"), [number]):
            return float(_value(number, module))
    raise LookupError(ast.unparse(node))
