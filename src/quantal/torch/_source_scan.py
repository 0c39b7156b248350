"""Find dropout that a module's own code draws: calls such as ``F.dropout(x, self.rate)``."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import math
import textwrap
from collections.abc import Hashable, Iterator, Mapping
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import nn

from quantal.torch._reroute import REROUTED

__all__ = ["Call", "calls"]

# Where the rate stands: by these keywords, or else at this position, or else it is that.
_KEYWORDS = ("p", "dropout_p", "dropout")
_POSITIONS = {F.scaled_dot_product_attention: (4, 0.0), F.multi_head_attention_forward: (10, 0.0)}
_OTHER_LAWS = (F.alpha_dropout, F.feature_alpha_dropout, torch.alpha_dropout, torch.feature_dropout)
# Of the attention functions of Hugging Face, those that end in functions of torch.
_ATTENTION = {"eager": F.dropout, "sdpa": F.scaled_dot_product_attention}

_Names = Mapping[str, Any]


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


def calls(module: nn.Module) -> list[Call]:
    """Return the calls in a module's forward and in what it calls of its class and package."""
    cls: Any = type(module)
    judged = (_judged(call, {**names, "self": module}) for call, names in _calls_of(cls))
    return [call for call in judged if call is not None]


def _judged(call: ast.Call, names: _Names) -> Call | None:
    """Return a call if it drops units, given what the names in it stand for."""
    passed = {keyword.arg: keyword.value for keyword in call.keywords}
    asked = bool(passed.keys() & {"dropout", "dropout_p"})
    called = _value(call.func, names)
    if called is None and asked:  # a local variable
        config = getattr(names["self"], "config", None)
        called = _ATTENTION.get(getattr(config, "_attn_implementation", ""))
    through = unreached = ""
    known = isinstance(called, Hashable)
    if known and called in REROUTED:
        through = called.__name__
    elif known and called in _OTHER_LAWS:
        unreached = "this function follows a law other than dropout's"
    elif not asked or isinstance(called, type | nn.Module | MethodType) or _near(called, names):
        return None  # it does not drop units, or is looked at by itself
    else:
        unreached = "dropout in the forward code, passed to a function that is not torch's own"
    position, default = _POSITIONS.get(called, (1, 0.5))
    rates = [passed[k] for k in _KEYWORDS if k in passed] + call.args[position : position + 1]
    rate = _value(rates[0], names) if rates else default
    if rate == 0 and (not rates or isinstance(rates[0], ast.Constant)):
        return None
    rate = rate if isinstance(rate, int | float) else math.nan
    return Call(ast.unparse(call.func), rate, through, unreached)


@functools.cache
def _calls_of(cls: type[nn.Module]) -> list[tuple[ast.Call, _Names]]:
    """Return all calls in the code of a class, with the global names there."""
    return [
        (node, function.__globals__)
        for function in _functions(cls)
        for node in ast.walk(_tree(function))
        if isinstance(node, ast.Call)
    ]


def _functions(cls: type[nn.Module]) -> Iterator[FunctionType]:
    """Walk through forward, and what it calls of its class and of its package."""
    waiting: list[Any] = [cls.forward]
    met = set()
    while waiting:
        function = inspect.unwrap(waiting.pop())
        if not isinstance(function, FunctionType) or function in met:
            continue
        met.add(function)
        where = function.__module__
        if where.startswith("torch.") and where != "torch.nn.modules.dropout":
            continue  # the other layers of torch that drop units are known by their attributes
        yield function
        for node in ast.walk(_tree(function)):
            match node:
                case ast.Attribute(ast.Name("self"), name):
                    waiting.append(inspect.getattr_static(cls, name, None))
                case ast.Attribute(ast.Call(ast.Name("super")), name):
                    waiting += [base.__dict__.get(name) for base in cls.__mro__]
                case ast.Call(called):
                    if _near(found := _value(called, function.__globals__), function.__globals__):
                        waiting.append(found)


def _near(called: Any, names: _Names) -> bool:
    """Whether a function is of the package that these global names belong to."""
    if not isinstance(called, FunctionType):
        return False
    return called.__module__.split(".")[0] == names["__name__"].split(".")[0]


@functools.cache
def _tree(function: FunctionType) -> ast.Module:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # no source, or only a part of a statement
        return ast.Module([], [])


def _value(node: ast.expr, names: _Names) -> Any:
    """Return what an expression gives in training; None for most, such as a local variable."""
    match node:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return names.get(name, getattr(builtins, name, None))
        case ast.Attribute(ast.Name("self"), "training"):
            return True
        case ast.Attribute(ast.Call(ast.Name("super")), name):
            return getattr(names.get("self"), name, None)
        case ast.Attribute(value, name):
            return getattr(_value(value, names), name, None)
        case ast.IfExp(test, body, orelse):
            return _value(body if _value(test, names) else orelse, names)
        case ast.UnaryOp(ast.Not(), operand):
            return not _value(operand, names)
        case ast.Call(ast.Name("float"), [number]):
            value = _value(number, names)
            return None if value is None else float(value)
    return None
