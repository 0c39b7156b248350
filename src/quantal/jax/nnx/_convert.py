"""QSD in the place of dropout in an existing NNX model, and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from flax import nnx
from flax.nnx.nn import attention

from quantal._selection import Alpha, Pattern, Selection
from quantal.jax._find_sites import Place, alpha_for, readable, wanted
from quantal.jax._source_scan import literal_dropout
from quantal.jax.nnx._attention import QSDAttention
from quantal.jax.nnx._layer import QSD
from quantal.sites import Site, Sites

__all__ = ["convert", "places", "revert", "sites"]

Model = TypeVar("Model")

_ATTENTION = (attention.dot_product_attention, attention.dot_product_attention_weights)


def convert(
    model: Model,
    alpha: Alpha,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
) -> Model:
    """Put QSD in the place of every dropout of a model, in place.

    Layers stay the objects they are, with their rates, streams and modes, and shared ones stay
    shared; they only change their class. The state of the model is the same as before, so
    checkpoints fit both ways. Functions compiled before are traced anew, except for those that keep
    the graph by themselves: a ``GraphDef`` or an ``nnx.cached_partial`` is to be made anew.

    Parameters
    ----------
    model : nnx.Module
        Any module, or any tree of modules; its ``nnx.Dropout`` and the dropout of
        ``nnx.MultiHeadAttention`` on its weights are swapped.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of paths such as ``"blocks/*/dropout"``, or functions of
        (path, module).
    strict : bool
        Whether dropout that cannot be swapped is an error, or else a warning.

    Returns
    -------
    nnx.Module
        The model itself.

    Examples
    --------
    >>> model = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5))
    >>> sites(convert(model, alpha=1.0))
    name      kind  rate  alpha  mean gain
    layers/1  QSD   0.5   1      1.333
    1 site, 1 of them QSD
    """
    selection = Selection(alpha, include, exclude, strict)
    chosen, unreached = wanted(selection, places(model))
    selection.settle([place.site.name for place in chosen], unreached)
    alphas = [alpha_for(selection, _rate(place.module)) for place in chosen]
    for (_, module), own_alpha in zip(chosen, alphas, strict=True):
        if isinstance(module, nnx.MultiHeadAttention):
            module.attention_fn = QSDAttention(own_alpha, module.attention_fn)
        else:
            _become(Swapped, module)
            for name, value in (_QSD_ALONE | {"alpha": own_alpha}).items():
                setattr(module, name, value)
    return model


def revert(model: Model) -> Model:
    """Undo `convert`, in place: the same objects are dropout again.

    Weights, rates, streams and modes stay as they are now. QSD layers that `convert` did not make
    are left alone.

    Examples
    --------
    >>> model = nnx.Sequential(nnx.Dropout(0.5))
    >>> type(revert(convert(model, alpha=1.0)).layers[0]) is nnx.Dropout
    True
    """
    for _, module in nnx.iter_graph(model):
        if isinstance(module, Swapped):
            for name in _QSD_ALONE:
                delattr(module, name)
            _become(nnx.Dropout, module)
        elif isinstance(getattr(module, "attention_fn", None), QSDAttention):
            module.attention_fn = module.attention_fn.native
    return model


def sites(model: Any) -> Sites:
    """List every place of a model where units are dropped, and why some cannot be swapped.

    Examples
    --------
    >>> sites(nnx.Sequential(nnx.Dropout(0.5), QSD(0.5, alpha=1.0)))
    name      kind     rate  alpha  mean gain
    layers/0  Dropout  0.5   -      1
    layers/1  QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """
    return Sites(place.site for place in places(model))


class Swapped(QSD):
    """A QSD that `convert` put in the place of an ``nnx.Dropout``, which `revert` finds."""


# The attributes that QSD has beyond those of dropout.
_QSD_ALONE = {"alpha": None, "p_broadcast_dims": (), "vary": "pq", "unit_mean": False}


def places(model: Any) -> Iterator[Place]:
    """Yield every place of a model where units are dropped, each shared module once."""
    for path, module in nnx.iter_graph(model):
        if not isinstance(module, nnx.Module):
            continue
        name = "/".join(map(str, path))
        if (site := _site(name, module)) is not None:
            yield Place(site, module)
        for literal in literal_dropout(name, type(module), (nnx.Dropout,), _ATTENTION):
            yield Place(literal, module)


def _site(name: str, module: nnx.Module) -> Site | None:
    if isinstance(module, QSD):
        rate, alpha = readable(module.rate), readable(module.alpha)
        return Site(name, "QSD", rate, alpha, vary=module.vary, unit_mean=module.unit_mean)
    kind, reason = type(module).__name__, ""
    if isinstance(module, nnx.Dropout):
        if type(module) is not nnx.Dropout:
            reason = f"{kind} is a class of its own"
    elif isinstance(module, nnx.MultiHeadAttention) and module.dropout_rate > 0:
        if isinstance(module.attention_fn, QSDAttention):
            return Site(name, "QSD", readable(module.dropout_rate), module.attention_fn.alpha)
        if module.attention_fn is not attention.dot_product_attention:
            reason = "its attention_fn is not nnx.dot_product_attention"
    else:
        return None
    return Site(name, kind, readable(_rate(module)), unreached=reason)


def _become(kind: type, module: nnx.Module) -> None:
    # NNX takes what is set in the usual way for an attribute of the model.
    object.__setattr__(module, "__class__", kind)


def _rate(module: Any) -> Any:
    return module.dropout_rate if isinstance(module, nnx.MultiHeadAttention) else module.rate
