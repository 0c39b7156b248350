"""The changes that make a model one with QSD, all of them or none."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from quantal._selection import Place
from quantal.dilution import Dilution
from quantal.torch._classes import become, is_torchs_own
from quantal.torch._layers import DilutionLayer
from quantal.torch._private_api import has_hooks
from quantal.torch._swap import Change, reroute, reroute_all, to_qsd

__all__ = [
    "as_it_was",
    "change_place",
    "code_of_others",
    "reroute_code_of_others",
    "unless_it_fails",
]


def change_place(place: Place, alpha: float, model: nn.Module) -> None:
    """Bring QSD to a place of a model."""
    change: Change = place.how
    if change.layer is None:
        reroute(place.module, change, alpha)
    else:
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        to_qsd(place.module, change.layer, Dilution(place.site.rate, alpha), device)


def reroute_code_of_others(model: nn.Module, alpha: float, complete: bool) -> None:
    """Let all code that is not torch's own draw QSD, whether it is known to drop units or not.

    ``complete`` says that all known dropout can: then masks of another kind cause a warning.
    """
    for module in code_of_others(model, outermost=True):
        reroute_all(module, alpha, complete)


def code_of_others(module: nn.Module, outermost: bool = False) -> Iterator[nn.Module]:
    """Walk through the modules that run code which is not torch's own.

    With ``outermost``, those inside of another one are left out.
    """
    met = set[int]()
    waiting = [module]
    while waiting:
        each = waiting.pop()
        if id(each) in met or isinstance(each, torch.jit.ScriptModule):
            continue
        met.add(id(each))
        if is_torchs_own(type(each)):
            known = not _holds_code(each)
        else:
            known = isinstance(each, DilutionLayer)
        found = not known or "forward" in vars(each) or has_hooks(each)
        if found:
            yield each
        if not (found and outermost):
            waiting += each.children()


def _holds_code(module: nn.Module) -> bool:
    """Return whether one of torch's modules was given code of others to call, as an activation."""
    given = [value for value in vars(module).values() if callable(value)]
    return not all(
        is_torchs_own(value if inspect.isroutine(value) or inspect.isclass(value) else type(value))
        for value in given
    )


@contextmanager
def unless_it_fails(model: nn.Module) -> Iterator[None]:
    """Within it, a model may be changed; if that fails halfway, it is as it was."""
    before = _anatomy(model)
    try:
        yield
    except BaseException:
        _put_back(before)
        raise


@contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Within it, a model may be changed; afterwards it is as it was."""
    before = _anatomy(model)
    try:
        yield
    finally:
        _put_back(before)


_Contents = list[tuple[Any, Any]]


def _anatomy(model: nn.Module) -> list[tuple[Any, type, dict[str, Any], _Contents]]:
    """Return class and attributes of every module, and what their containers hold."""
    found = []
    for module in model.modules():
        if not isinstance(module, torch.jit.ScriptModule):
            attributes = dict(vars(module))
            containers = [v for v in attributes.values() if type(v) in (dict, list, set)]
            found.append((module, type(module), attributes, [(c, c.copy()) for c in containers]))
    return found


def _put_back(before: list[tuple[Any, type, dict[str, Any], _Contents]]) -> None:
    for module, cls, attributes, contents in before:
        become(module, cls)
        vars(module).clear()
        vars(module).update(attributes)
        for container, held in contents:
            container.clear()
            (container.extend if isinstance(container, list) else container.update)(held)
