"""`convert`, which brings QSD into an existing model, and `revert`, which takes it out again."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import nn

from quantal.dilution import Dilution
from quantal.sites import Alpha, Pattern, Selection
from quantal.torch._find_sites import Place, places
from quantal.torch._swap import layer_for, reroute, restore, to_qsd

__all__ = ["convert", "revert"]

Model = TypeVar("Model", bound=nn.Module)


def convert(
    model: Model,
    alpha: Alpha,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
) -> Model:
    """Turn the dropout of a model into QSD of the same rates, in place.

    Layers of dropout become `QSD` layers. Recurrent layers, ``nn.MultiheadAttention`` and modules
    that call ``F.dropout`` or ``F.scaled_dot_product_attention`` themselves keep their class and
    draw QSD in training. In evaluation the model does exactly what it did, and its state_dict is
    the same.

    Parameters
    ----------
    model : nn.Module
        The model; it is changed and returned.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Names as `sites` lists them, with ``*`` for anything, or functions of (name, module).
    strict : bool
        Whether dropout that cannot be reached, or none at all, is an error; else it is a warning.
        A refused model is unchanged.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2))
    >>> convert(model, alpha=0.2)
    Sequential(
      (0): Linear(in_features=8, out_features=8, bias=True)
      (1): QSD(p=0.2, alpha=0.2, inplace=False)
    )
    """
    selection = Selection(alpha, include, exclude, strict)
    native = [place for place in places(model) if place.site.alpha is None]
    chosen = [place for place in native if selection(place.site.name, place.module)]
    left = [place for place in native if not selection(place.site.name, place.module)]
    reached, unreached = [], []
    for place in chosen:
        if reason := place.site.unreached or _why_not(place, chosen, left, selection):
            unreached.append(dataclasses.replace(place.site, unreached=reason))
        else:  # the law now, since a wrong alpha must be found while nothing has changed
            reached.append((place, _law(place.site.rate, selection)))
    selection.settle([place.site.name for place, _ in reached], unreached)
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    for place, law in reached:
        if layer := layer_for(place.module):
            to_qsd(place.module, layer, law, device)
        else:
            reroute(place.module, place.through, law.alpha)
    return model


def revert(model: Model) -> Model:
    """Undo `convert`, in place: every module is again what it was, with its weights as they are.

    Rates that were changed meanwhile are kept. `QSD` layers that `convert` did not make stay.

    Examples
    --------
    >>> revert(convert(nn.Dropout(0.2), alpha=0.2))
    Dropout(p=0.2, inplace=False)
    """
    for module in list(model.modules()):
        restore(module)
    return model


def _why_not(
    place: Place, chosen: Sequence[Place], left: Sequence[Place], selection: Selection
) -> str:
    """Return why a place in the code of a module cannot be converted, or nothing."""
    if layer_for(place.module):
        return ""
    inside = set(place.module.modules())
    for other in left:
        if other.module in inside and other.through == place.through:
            return f"{other.site.name} within it is left out, and calls the same function"
    key = (place.module, place.through)
    rates = {other.site.rate for other in chosen if (other.module, other.through) == key}
    if callable(selection.alpha) and (len(rates) > 1 or math.isnan(place.site.rate)):
        return "its rate is known only when it runs: alpha must be a number here"
    return ""


def _law(rate: float, selection: Selection) -> Dilution:
    """Return the law for a rate; where it is known only when it runs, alpha alone counts."""
    return selection.dilution(0.5 if math.isnan(rate) else rate)
