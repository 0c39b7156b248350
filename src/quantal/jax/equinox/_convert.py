"""QSD in the place of dropout in an existing Equinox model, and back."""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx
import jax

from quantal._selection import Alpha, Pattern, Selection
from quantal.jax._find_sites import Place, alpha_for, readable, wanted
from quantal.jax._functional import Number
from quantal.jax._source_scan import literal_dropout
from quantal.jax.equinox._layer import QSD
from quantal.sites import Site, Sites

__all__ = ["convert", "is_dropout", "revert", "sites"]

Model = TypeVar("Model")


def convert(
    model: Model,
    alpha: Alpha,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
) -> Model:
    """Return a model with QSD in the place of every dropout.

    Rates, also array-valued ones and those of stacked layers, and ``inference`` are kept, and so
    are the leaves of the model: checkpoints and optimiser states fit both ways.

    Parameters
    ----------
    model : eqx.Module
        Any module or tree of modules; every ``eqx.nn.Dropout`` in it is swapped, also the one that
        ``eqx.nn.MultiheadAttention`` applies to its weights. It stays as it is.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of paths such as ``"blocks.*.dropout"``, or functions of
        (path, module).
    strict : bool
        Whether dropout that cannot be swapped is an error, or else a warning.

    Returns
    -------
    eqx.Module
        A new model.

    Examples
    --------
    >>> model = eqx.nn.Sequential([eqx.nn.Identity(), eqx.nn.Dropout(0.5)])
    >>> sites(convert(model, alpha=1.0))
    name      kind  rate  alpha  mean gain
    layers.1  QSD   0.5   1      1.333
    1 site, 1 of them QSD
    """
    selection = Selection(alpha, include, exclude, strict)
    chosen, unreached = wanted(selection, _places(model))
    selection.settle([place.site.name for place in chosen], unreached)
    names = {place.site.name for place in chosen}

    def swap(path: Any, node: Any) -> Any:
        if is_dropout(node) and _name(path) in names:
            return _like(node, Swapped(alpha=alpha_for(selection, node.p)))
        return node

    return jax.tree_util.tree_map_with_path(swap, model, is_leaf=is_dropout)


def revert(model: Model) -> Model:
    """Return a model with the dropout that `convert` swapped; rates are those of now.

    Examples
    --------
    >>> model = eqx.nn.Sequential([eqx.nn.Identity(), eqx.nn.Dropout(0.5)])
    >>> bool(eqx.tree_equal(revert(convert(model, alpha=1.0)), model))
    True
    """

    def swap(node: Any) -> Any:
        return _like(node, eqx.nn.Dropout()) if isinstance(node, Swapped) else node

    return jax.tree.map(swap, model, is_leaf=is_dropout)


def sites(model: Any) -> Sites:
    """List every place of a model where units are dropped, and why some cannot be swapped.

    Examples
    --------
    >>> sites([eqx.nn.Dropout(0.5), QSD(0.5, alpha=1.0)])
    name  kind     rate  alpha  mean gain
    0     Dropout  0.5   -      1
    1     QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """
    return Sites(place.site for place in _places(model))


class Swapped(QSD):
    """A QSD that `convert` put in the place of an ``eqx.nn.Dropout``, which `revert` finds.

    Its ``alpha`` is static: with no leaf beyond those of dropout, checkpoints fit both.
    """

    alpha: Number = eqx.field(static=True)


def is_dropout(node: Any) -> bool:
    """Return whether a node of a model is a dropout layer of any kind."""
    return isinstance(node, eqx.nn.Dropout)


def _like(dropout: Any, layer: Any) -> Any:
    # Not by the constructor: rates of stacked layers are arrays that it would refuse.
    return eqx.tree_at(lambda d: (d.p, d.inference), layer, (dropout.p, dropout.inference))


def _places(model: Any) -> list[Place]:
    places: list[Place] = []

    def visit(path: Any, node: Any) -> bool:
        name = _name(path)
        if is_dropout(node):
            places.append(Place(_site(name, node), node))
        elif isinstance(node, eqx.Module):
            found = literal_dropout(name, type(node), (eqx.nn.Dropout,), ())
            places.extend(Place(site, node) for site in found)
        return is_dropout(node)

    jax.tree_util.tree_leaves_with_path(model, is_leaf=visit, is_leaf_takes_path=True)
    return places


def _site(name: str, dropout: Any) -> Site:
    if isinstance(dropout, QSD):
        rate, alpha = readable(dropout.p), readable(dropout.alpha)
        return Site(name, "QSD", rate, alpha, vary=dropout.vary, unit_mean=dropout.unit_mean)
    kind = type(dropout).__name__
    reason = "" if type(dropout) is eqx.nn.Dropout else f"{kind} is a class of its own"
    return Site(name, kind, readable(dropout.p), unreached=reason)


def _name(path: Any) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="."))
