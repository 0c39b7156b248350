"""QSD in the place of dropout in an existing Equinox model, and back."""

from __future__ import annotations

from typing import Any, TypeVar

import equinox as eqx
import jax

from quantal._selection import Alpha, Pattern, Selection
from quantal.jax.equinox._find_sites import is_dropout, name_of, places
from quantal.jax.equinox._layer import QSD
from quantal.sites import Sites

__all__ = ["convert", "revert", "sites"]

Model = TypeVar("Model")


def convert(
    model: Model,
    alpha: Alpha | None = None,
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
        True: dropout that cannot be swapped is an error. False: it is a warning.

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
    chosen = Selection(alpha, include, exclude, strict).choose(places(model))
    alphas = {place.site.name: own_alpha for place, own_alpha in chosen}

    def swap(path: Any, node: Any) -> Any:
        if is_dropout(node) and name_of(path) in alphas:
            return _like(node, Swapped(alpha=alphas[name_of(path)]))
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
    return Sites(place.site for place in places(model))


class Swapped(QSD):
    """A QSD that `convert` put in the place of an ``eqx.nn.Dropout``, which `revert` finds."""


def _like(dropout: Any, layer: Any) -> Any:
    # Not by the constructor: rates of stacked layers are arrays that it would refuse.
    return eqx.tree_at(lambda d: (d.p, d.inference), layer, (dropout.p, dropout.inference))
