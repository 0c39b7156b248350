"""Every place of a model where units are dropped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from quantal.checks import wrong_type
from quantal.sites import Site, Sites
from quantal.torch.layers import QSD
from quantal.torch.reading import calls
from quantal.torch.swapping import Rerouted, layer_for

__all__ = ["Place", "places", "sites"]


@dataclass(frozen=True)
class Place:
    """A site and its module."""

    site: Site
    module: nn.Module


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
        for site in _sites_of(name, module):
            yield Place(site, module)


def _sites_of(name: str, module: nn.Module) -> Iterator[Site]:
    kind = type(module).__name__
    alpha = module._qsd_alpha if isinstance(module, Rerouted) else None
    if isinstance(module, torch.jit.ScriptModule):
        if _drops(module):
            reason = "scripted code cannot be changed: convert before torch.jit.script"
            yield Site(name, module.original_name, math.nan, None, reason)
    elif isinstance(module, QSD):
        yield Site(name, kind, module.p, module.alpha)
    elif isinstance(module, nn.RNNBase):
        if module.dropout and module.num_layers > 1:  # with one layer there is no between
            yield Site(name, kind, module.dropout, alpha)
    elif isinstance(module, nn.MultiheadAttention):
        if module.dropout:
            yield Site(name, kind, module.dropout, alpha)
    elif layer_for(module):
        yield Site(name, kind, module.p)
    elif isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
        yield Site(name, kind, module.p, None, "this layer follows a law other than dropout's")
    else:
        found = calls(module)
        for call in found:
            reached = None if call.unreached else alpha
            where = f"{name}.forward".lstrip(".")
            yield Site(where, call.function, call.rate, reached, call.unreached)
        if isinstance(module, _DropoutNd) and not found:
            yield Site(name, kind, module.p, None, "its forward is its own, and cannot be read")


def _drops(module: torch.jit.ScriptModule) -> bool:
    try:
        return "dropout" in module.code
    except (AttributeError, RuntimeError):  # a mere container has no code
        return False
