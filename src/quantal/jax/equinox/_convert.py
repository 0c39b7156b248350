"""QSD in the place of dropout in an existing Equinox model, and back."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax

from quantal._arguments import flag
from quantal._selection import Alpha, Pattern, Place, Selection
from quantal.jax._example import Example, runner
from quantal.jax._watch import unknown_places
from quantal.jax.equinox._find_sites import find_sites, is_dropout, name_of
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
    example: Example = None,
) -> Model:
    """Return a model in which every dropout is QSD with the same rate.

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
        True: dropout that cannot be converted is an error. False: it is a warning.
    example : function or inputs, optional
        As in `sites`: proves that no dropout was missed.

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
    selection = Selection(alpha, include, exclude, flag("strict", strict))
    chosen = selection.choose(_find_all_sites(model, example))
    return _swapped(model, {place.site.name: own_alpha for place, own_alpha in chosen})


def revert(model: Model) -> Model:
    """Return a model with dropout instead of the QSD that `convert` made; rates are kept.

    Examples
    --------
    >>> model = eqx.nn.Sequential([eqx.nn.Identity(), eqx.nn.Dropout(0.5)])
    >>> bool(eqx.tree_equal(revert(convert(model, alpha=1.0)), model))
    True
    """
    find_sites(model)  # raises if this is no model

    def swap(node: Any) -> Any:
        return _like(node, eqx.nn.Dropout()) if isinstance(node, SwappedLayer) else node

    return jax.tree.map(swap, model, is_leaf=is_dropout)


def sites(model: Any, *, example: Example = None) -> Sites:
    """List every place of a model where units are dropped, and why some cannot be converted.

    Parameters
    ----------
    model : eqx.Module
        Any module or tree of modules.
    example : function or inputs, optional
        Proves that no place is missing: a training pass is traced, and every mask that it draws
        is seen, wherever it comes from. Inputs are a tuple of positional arguments, a dict of
        keyword arguments or a single array, and the model is called with them, and with a ``key``
        if it takes one; a function, such as ``lambda model: loss(model, batch, key)``, is given
        the model, with ``inference`` switched off.

    Examples
    --------
    >>> sites([eqx.nn.Dropout(0.5), QSD(0.5, alpha=1.0)])
    name  kind     rate  alpha  mean gain
    0     Dropout  0.5   -      1
    1     QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """
    return Sites(place.site for place in _find_all_sites(model, example))


def _find_all_sites(model: Any, example: Example) -> list[Place]:
    """Return the places that are found in the model and, with an example, in a run."""
    known = find_sites(model)
    if example is None:
        return known
    run, arrays = runner(example, _call)
    reached = {p.site.name: 1.0 for p in known if p.site.alpha is None and not p.site.unreached}
    trained = eqx.nn.inference_mode(_swapped(model, reached), value=False)
    parameters, rest = eqx.partition(trained, eqx.is_array)

    def training_pass(parameters: Any, arrays: Any) -> Any:
        return run(eqx.combine(parameters, rest), arrays)

    return known + unknown_places(training_pass, (parameters, arrays), known)


def _call(model: Any, *args: Any, **kwargs: Any) -> Any:
    takes = inspect.signature(model).parameters
    if "key" in takes and "key" not in kwargs:
        kwargs["key"] = jax.random.key(0)
    return model(*args, **kwargs)


def _swapped(model: Model, alphas: Mapping[str, float]) -> Model:
    """Return a model with QSD at these places."""
    made: Any = SwappedLayer  # its constructor is that of QSD, not the one of a dataclass

    def swap(path: Any, node: Any) -> Any:
        if is_dropout(node) and name_of(path) in alphas:
            return _like(node, made(alpha=alphas[name_of(path)]))
        return node

    return jax.tree_util.tree_map_with_path(swap, model, is_leaf=is_dropout)


class SwappedLayer(QSD):
    """A QSD that `convert` put in the place of an ``eqx.nn.Dropout``, which `revert` finds."""


def _like(dropout: Any, layer: Any) -> Any:
    # Not by the constructor: rates of stacked layers are arrays that it would refuse.
    return eqx.tree_at(lambda d: (d.p, d.inference), layer, (dropout.p, dropout.inference))
