"""QSD in the place of dropout in an existing NNX model, and back."""

from __future__ import annotations

from typing import Any, TypeVar

from flax import nnx

from quantal._selection import Alpha, Pattern, Selection
from quantal.jax.nnx._attention import QSDAttention
from quantal.jax.nnx._find_sites import places
from quantal.jax.nnx._layer import QSD
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
        True: dropout that cannot be swapped is an error. False: it is a warning.

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
    for place, own_alpha in Selection(alpha, include, exclude, strict).choose(places(model)):
        module = place.module
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


def _become(kind: type, module: nnx.Module) -> None:
    # NNX takes what is set in the usual way for an attribute of the model.
    object.__setattr__(module, "__class__", kind)
