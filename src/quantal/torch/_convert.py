"""`convert`, which brings QSD into an existing model, and `revert`, which takes it out again."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, TypeVar

from torch import nn

from quantal._selection import Alpha, Pattern, Place, Selection
from quantal.torch._change import change_place, reroute_code_of_others, unless_it_fails
from quantal.torch._find_sites import check_model, find_all_sites
from quantal.torch._swap import Change, restore

__all__ = ["convert", "revert"]

Model = TypeVar("Model", bound=nn.Module)


def convert(
    model: Model,
    alpha: Alpha | None = None,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
    example: Any = None,
) -> Model:
    """Turn the dropout of a model into QSD of the same rates, in place.

    Layers of dropout become `QSD` layers. Recurrent layers, ``nn.MultiheadAttention`` and modules
    that call ``F.dropout`` or ``F.scaled_dot_product_attention`` themselves keep their name and
    draw QSD in training. So does all other code of the model that is not torch's own, if nothing
    is left out. In evaluation the model does exactly what it did, and its state_dict is the same.

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
    example : optional
        The proof that nothing was missed: an input of the model, a tuple of positional arguments,
        a mapping of named ones, or a function (of the model, or of nothing) that runs it as it is
        trained. This training pass is watched; what draws in it is swapped, or named with its file
        and line. Afterwards the model and all random states are as they were.

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
    why_not = functools.partial(_why_not, callable(alpha))
    found = find_all_sites(model, example)
    chosen = selection.choose(found, why_not)
    with unless_it_fails(model):
        for place, alpha_here in chosen:
            change_place(place, alpha_here, model)
        if chosen and include is None and exclude is None:
            rest = math.nan if callable(selection.alpha) else selection.alpha
            reroute_code_of_others(model, rest, not any(p.site.unreached for p in found))
    return model


def revert(model: Model) -> Model:
    """Undo `convert`, in place: every module is again what it was, with its weights as they are.

    Rates that were changed meanwhile are kept. `QSD` layers that `convert` did not make stay.

    Examples
    --------
    >>> revert(convert(nn.Dropout(0.2), alpha=0.2))
    Dropout(p=0.2, inplace=False)
    """
    check_model(model)
    for module in list(model.modules()):
        restore(module)
    return model


def _why_not(
    by_rate: bool, place: Place, chosen: Sequence[Place], left_out: Sequence[Place]
) -> str:
    """Return why a place in the code of a module cannot be converted, or nothing.

    ``by_rate`` says that alpha is a function of the rate.
    """
    change: Change = place.how
    if change.layer is not None:
        return ""
    inside = set(place.module.modules())
    for other in left_out:
        if other.module in inside and _name(other) == change.route.name:
            return f"{other.site.name} within it is left out, and calls the same function"
    here = [o for o in chosen if o.module is place.module and _name(o) == change.route.name]
    if by_rate and len({other.site.rate for other in here}) > 1:
        return "its rate is known only when it runs: alpha must be a number here"
    return ""


def _name(place: Place) -> str:
    return place.how.route.name if place.how else ""
