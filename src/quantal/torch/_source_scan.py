"""Find dropout that a module's own code draws: calls such as ``F.dropout(x, self.rate)``."""

from __future__ import annotations

import ast
import math
from collections.abc import Hashable
from types import MethodType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import nn

from quantal._source_scan import UNKNOWN, Scanner, SourceCall
from quantal._watch import StackFrame, of_its_own
from quantal.torch._native_masks import DROPOUT
from quantal.torch._private_api import USUAL_ATTENTION, attention_implementation
from quantal.torch._reroute import NATIVE_MASKS, OTHER_LAWS, ROUTES, Route

__all__ = ["Call", "calls", "new_scanner"]

# The rate is the argument with one of these names, or that in this position, with this default.
_NAMES = ("p", "dropout_p", "dropout")
_POSITIONS = {F.scaled_dot_product_attention: (4, 0.0), F.multi_head_attention_forward: (10, 0.0)}
_USUAL_POSITION = (1, 0.5)
# What the layers of torch call: a subclass may call the forward method of its parent.
_FORWARD = {
    nn.Dropout.forward: F.dropout,
    nn.Dropout1d.forward: F.dropout1d,
    nn.Dropout2d.forward: F.dropout2d,
    nn.Dropout3d.forward: F.dropout3d,
}
# The functions that masks are made with.
_RANDOM = ("bernoulli", "bernoulli_", "rand", "rand_like", "uniform_")
# Of the attention functions of Hugging Face, those that end in functions of torch.
_ATTENTION = {"eager": F.dropout, "sdpa": F.scaled_dot_product_attention}


class Call(NamedTuple):
    """A call that drops units, in the code of a module.

    Attributes
    ----------
    written : str
        The function, as the code has it; empty if the code draws a mask of its own.
    rate : float
        The rate; NaN if it cannot be read, as that of a local variable.
    route : Route or None
        How torch's function that draws in the end is rerouted, if it can be.
    unreached : str
        Why it cannot.
    """

    written: str
    rate: float
    route: Route | None
    unreached: str


def new_scanner() -> Scanner:
    """Return what reads the code of one model; it remembers what it has read."""
    libraries = frozenset({"torch", "quantal"})  # torch's own layers are known by their attributes
    return Scanner(libraries=libraries, apart=(nn.Module,), assume={"training": True})


def calls(module: nn.Module, scanner: Scanner) -> list[Call]:
    """Return the calls that drop units in a module's code and in what it calls of its package."""
    found = list(scanner.calls(module))
    if functions := {call.target.__self__ for call in found if _is_autograd(call.target)}:
        found = list(scanner.calls(module, [function.forward for function in functions]))
    if any(_is_chosen(call) for call in found):
        # The configuration chooses: the default that the code mentions is not another place.
        found = [call for call in found if call.function.__name__ != USUAL_ATTENTION]
    judged = (_judged(call, module) for call in found)
    own = (_own_mask(call, module) for call in found)
    return [*filter(None, judged), *[*filter(None, own)][:1]]


def _is_autograd(target: Any) -> bool:
    """Return whether a call is that of a function with its own derivative."""
    if not isinstance(target, MethodType) or target.__name__ != "apply":
        return False
    return isinstance(target.__self__, type) and issubclass(
        target.__self__, torch.autograd.Function
    )


def _own_mask(call: SourceCall, module: nn.Module) -> Call | None:
    """Return a call that draws what a mask is made of, in code that is dropout by its name."""
    match call.node.func:
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in _RANDOM:
            kind, function = type(module).__name__, call.function
            if DROPOUT.search(f"{kind} {function.__qualname__}"):
                frame = StackFrame(function.__code__.co_filename, call.line, function.__qualname__)
                return Call("", math.nan, None, of_its_own(frame))
    return None


def _is_chosen(call: SourceCall) -> bool:
    """Return whether the function that is called drops units, and is chosen as the code runs."""
    asked = any(keyword.arg in ("dropout", "dropout_p") for keyword in call.node.keywords)
    return asked and (call.target is UNKNOWN or not isinstance(call.target, Hashable))


def _judged(call: SourceCall, module: Any) -> Call | None:
    """Return a call if it drops units."""
    target: Any = call.target if isinstance(call.target, Hashable) else UNKNOWN
    asked = any(keyword.arg in ("dropout", "dropout_p") for keyword in call.node.keywords)
    if _is_chosen(call):
        target = _ATTENTION.get(attention_implementation(getattr(module, "config", None)))
    if isinstance(target, MethodType) and target.__self__ is module and target.__func__ in _FORWARD:
        layer: Any = module
        return Call(call.written, layer.p, ROUTES[_FORWARD[target.__func__]], "")
    route, unreached = ROUTES.get(target), ""
    if target in OTHER_LAWS:
        unreached = "this function follows a law other than dropout's"
    elif target in NATIVE_MASKS:
        unreached = "this function returns its mask, too, and QSD has no such mask"
    elif isinstance(target, torch.jit.ScriptFunction):
        code: Any = target.code
        if "dropout" not in code:
            return None
        unreached = "scripted code cannot be changed"
    elif route is None:
        if not asked or call.followed or isinstance(target, type | nn.Module | MethodType):
            return None  # it does not drop units, or is looked at by itself
        unreached = "dropout in the forward code, passed to a function that is not torch's own"
    position, default = _POSITIONS.get(target, _USUAL_POSITION)
    given = call.argument(position, *_NAMES)
    rate = default if given is None else given.number
    if rate == 0 and (given is None or given.literal):
        return None
    return Call(call.written, rate, route, unreached)
