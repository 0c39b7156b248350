"""Where an Equinox model drops units."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax

from quantal._errors import wrong_type
from quantal._selection import Place
from quantal.jax._parameters import described
from quantal.jax._source_scan import DropoutScan
from quantal.jax.equinox._layer import QSD
from quantal.sites import Site

__all__ = ["find_sites", "is_dropout", "name_of"]


def is_dropout(node: Any) -> bool:
    """Return whether a node of a model is a dropout layer of any kind."""
    return isinstance(node, eqx.nn.Dropout)


def find_sites(model: Any) -> list[Place]:
    """Return every place of a model where units are dropped."""
    dropout: list[Place] = []
    modules: list[tuple[str, Any]] = []

    def visit(path: Any, node: Any) -> bool:
        if is_dropout(node):
            dropout.append(Place(_site(name_of(path), node), node))
        elif isinstance(node, eqx.Module):
            modules.append((name_of(path), node))
        return is_dropout(node)

    jax.tree_util.tree_leaves_with_path(model, is_leaf=visit, is_leaf_takes_path=True)
    if not (dropout or modules):
        raise wrong_type("model", "an equinox.Module, or a tree of such", model)
    scan = DropoutScan(eqx.Module, (eqx.nn.Dropout,))
    known = {id(place.module) for place in dropout}
    in_code = [place for name, module in modules for place in scan.places(name, module, known)]
    return dropout + in_code


def _site(name: str, dropout: Any) -> Site:
    if isinstance(dropout, QSD):
        return Site.of(name, "QSD", described(dropout))
    kind = type(dropout).__name__
    reason = "" if type(dropout) is eqx.nn.Dropout else f"{kind} is a class of its own"
    return Site(name, kind, dropout.p, unreached=reason)


def name_of(path: Any) -> str:
    """Return the path of a node as it is written in Python, such as ``blocks.0.dropout``."""
    return str(jax.tree_util.keystr(path, simple=True, separator="."))
