"""Linen modules inside of NNX ones, by ``nnx.bridge.ToNNX``: Linen's `convert` swaps their dropout.

A Linen module makes its layers when it runs. Without a run, only its code tells whether it makes
dropout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
from flax import linen as nn
from flax import nnx

from quantal._source_scan import Scanner, SourceCall
from quantal.jax._source_scan import LIBRARIES
from quantal.sites import Site

__all__ = ["bridged_site", "linen_module_in", "linen_site", "put_linen_module"]


def bridged_site(name: str, module: Any) -> Site | None:
    """Return the site of a Linen module that makes dropout, inside an NNX module; else None.

    Its rates are unknown.
    """
    inner = linen_module_in(module)
    return None if inner is None else linen_site(name, inner, type(module).__name__)


def linen_site(name: str, module: nn.Module, kind: str = "") -> Site | None:
    """Return the site of a Linen module that makes dropout; of any other, None."""
    if not _makes_dropout(module):
        return None
    swaps = getattr(module, "qsd", ())
    if swaps:
        return Site(name, "QSD", float("nan"), swaps[0].selection.alpha)
    return Site(name, kind or type(module).__name__, float("nan"))


def linen_module_in(module: Any) -> nn.Module | None:
    """Return the Linen module in an ``nnx.bridge.ToNNX``; None if the module is not one."""
    name = _attribute(module)
    return None if name is None else vars(module)[name]


def put_linen_module(module: Any, inner: nn.Module) -> None:
    """Put another Linen module in its place."""
    setattr(module, str(_attribute(module)), inner)


def _attribute(module: Any) -> str | None:
    # Its name has changed from version to version.
    if not isinstance(module, nnx.bridge.ToNNX):
        return None
    held = (name for name, value in vars(module).items() if isinstance(value, nn.Module))
    return next(held, None)


def _makes_dropout(module: nn.Module) -> bool:
    scanner = Scanner(LIBRARIES, apart=(nn.Module,), entries=("__call__", "setup"))
    waiting: list[Any] = [module]
    met: set[int] = set()
    while waiting:
        part = waiting.pop()
        if id(part) in met:
            continue
        met.add(id(part))
        if _drops(part):
            return True
        waiting += _fields(part)
        for call in scanner.calls(part):
            if _drops(call.target, call):
                return True
            waiting += [kind for kind in _mentioned(call) if issubclass(kind, nn.Module)]
    return False


def _drops(part: Any, call: SourceCall | None = None) -> bool:
    """Return whether a module, or a class of modules that is called, drops units."""
    kind = part if isinstance(part, type) else type(part)
    if issubclass(kind, nn.Dropout):
        return True
    if not issubclass(kind, nn.MultiHeadDotProductAttention):
        return False
    if call is None:
        return isinstance(part, nn.Module) and part.dropout_rate > 0
    rate = call.argument(None, "dropout_rate")
    return rate is not None and rate.number != 0


def _fields(part: Any) -> list[nn.Module]:
    if isinstance(part, type):
        return []
    values = [getattr(part, f.name, None) for f in dataclasses.fields(part) if f.name != "parent"]
    leaves = jax.tree.leaves(values, is_leaf=lambda leaf: isinstance(leaf, nn.Module))
    return [leaf for leaf in leaves if isinstance(leaf, nn.Module)]


def _mentioned(call: SourceCall) -> Iterator[type]:
    """Walk through the classes in a call: what is called, and what is passed, as to nn.remat."""
    for value in (call.target, *(call.value(node) for node in call.node.args)):
        if isinstance(value, type):
            yield value
