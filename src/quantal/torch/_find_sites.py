"""Every place of a model where units are dropped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from quantal._errors import wrong_type
from quantal.sites import Site, Sites
from quantal.torch._layers import QSD
from quantal.torch._source_scan import calls
from quantal.torch._swap import Rerouted, layer_for

__all__ = ["Place", "places", "sites"]


class Place(NamedTuple):
    """A site, its module, and the function of torch through which it draws, by its name."""

    site: Site
    module: nn.Module
    through: str = ""


def sites(model: nn.Module) -> Sites:
    """List the places of a model where units are dropped, by dropout or by QSD.

    Parameters
    ----------
    model : nn.Module
        Any model. A module used in several places is listed once, by its first name.

    Returns
    -------
    Sites
        A tuple of `quantal.sites.Site`; printed, a table. Dropout in the code of a module, such as
        ``F.dropout(x, self.rate)``, has the name of that module and ``forward``.

    Examples
    --------
    >>> sites(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), QSD(0.5, 1.0)))
    name  kind     rate  alpha  mean gain
    1     Dropout  0.1   -      1
    2     QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """
    return Sites(place.site for place in places(model))


def places(model: nn.Module) -> Iterator[Place]:
    """Walk through the places of a model."""
    if not isinstance(model, nn.Module):
        raise wrong_type("model", "a torch.nn.Module", model)
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            if _drops(module):
                reason = "scripted code cannot be changed: convert before torch.jit.script"
                yield Place(Site(name, module.original_name, math.nan, None, reason), module)
        elif isinstance(module, QSD):
            yield Place(Site.of(name, kind, module.dilution), module)
        elif layer := layer_for(module):
            # The function that each of these layers calls has the name of the layer.
            yield Place(
                Site(name, kind, module.p), module, layer.__name__.replace("QSD", "dropout")
            )
        elif isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
            reason = "this layer follows a law other than dropout's"
            yield Place(Site(name, kind, module.p, None, reason), module)
        else:
            yield from _without_a_layer(name, module)


def _without_a_layer(name: str, module: nn.Module) -> Iterator[Place]:
    """Walk through dropout that is an option of a module, or a call in its code."""
    alphas = module._qsd_alphas if isinstance(module, Rerouted) else {}
    kind, through = type(module).__name__, ""
    if isinstance(module, nn.MultiheadAttention):
        through = "multi_head_attention_forward"
    elif isinstance(module, nn.RNNBase) and module.num_layers > 1:  # with one, no layer is between
        through = module.mode.lower()
    if through and module.dropout:
        yield Place(Site(name, kind, module.dropout, alphas.get(through)), module, through)
    found = calls(module)
    for call in found:
        alpha = alphas.get(call.through)
        where = f"{name}.forward".lstrip(".")
        site = Site(where, call.written, call.rate, alpha, call.unreached)
        yield Place(site, module, call.through)
    if isinstance(module, _DropoutNd) and not found:
        reason = "its forward is its own, and no call in it is known"
        yield Place(Site(name, kind, module.p, None, reason), module)


def _drops(module: torch.jit.ScriptModule) -> bool:
    try:
        return "dropout" in module.code
    except (AttributeError, RuntimeError):  # a mere container has no code
        return False
