"""Every place of a model where units are dropped."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import nn

from quantal._errors import wrong_type
from quantal._selection import Place
from quantal._source_scan import Scanner
from quantal.sites import Site, Sites
from quantal.torch._layers import DilutionLayer
from quantal.torch._private_api import is_dropout
from quantal.torch._reroute import ROUTES, Route
from quantal.torch._source_scan import calls, new_scanner
from quantal.torch._swap import Change, Rerouted, layer_change

__all__ = ["check_model", "find_all_sites", "find_sites", "site_of_mask", "sites"]


def sites(model: nn.Module, *, example: Any = None) -> Sites:
    """List the places of a model where units are dropped, by dropout or by QSD.

    Parameters
    ----------
    model : nn.Module
        Any model. A module used in several places is listed once, by its first name.
    example : optional
        As in `convert`: what only a training pass shows is listed, too.

    Returns
    -------
    Sites
        A tuple of `quantal.sites.Site`; prints as a table. Dropout in the code of a module, such as
        ``F.dropout(x, self.rate)``, has the name of that module and ``forward``.

    Examples
    --------
    >>> from quantal.torch import QSD
    >>> sites(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1), QSD(0.5, 1.0)))
    name  kind     rate  alpha  mean gain
    1     Dropout  0.1   -      1
    2     QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """
    return Sites(place.site for place in find_all_sites(model, example))


def find_all_sites(model: nn.Module, example: Any = None) -> list[Place]:
    """Return the places of a model, and those that a training pass shows if there is an example."""
    found = list(find_sites(model))
    if example is None:
        return found
    # It loads more of torch: only if needed.
    from quantal.torch._watch import has_rate, unknown_places

    seen = unknown_places(model, example, found)
    better = {id(place.module) for place in seen if place.site.unreached}
    known = [
        place
        for place in found
        if not place.site.unreached or has_rate(place) or id(place.module) not in better
    ]
    return known + seen


def check_model(model: Any) -> None:
    """Refuse what is no model."""
    if not isinstance(model, nn.Module):
        raise wrong_type("model", "a torch.nn.Module", model)


def find_sites(model: nn.Module) -> Iterator[Place]:
    """Walk through the places of a model; where one can be converted, ``how`` is a `Change`."""
    check_model(model)
    scanner = new_scanner()
    for name, module in model.named_modules():
        kind = type(module).__name__
        if isinstance(module, torch.jit.ScriptModule):
            if _drops(module):
                reason = "scripted code cannot be changed: convert before torch.jit.script"
                yield Place(Site(name, module.original_name, math.nan, None, reason), module)
        elif isinstance(module, DilutionLayer):
            yield Place(Site.of(name, kind, module.dilution), module)
        elif change := layer_change(module):
            yield Place(Site(name, kind, module.p, _alpha(module, change.route)), module, change)
        elif isinstance(module, nn.AlphaDropout | nn.FeatureAlphaDropout):
            reason = "this layer follows a law other than dropout's"
            yield Place(Site(name, kind, module.p, None, reason), module)
        else:
            yield from _without_a_layer(name, module, scanner)


def _without_a_layer(name: str, module: Any, scanner: Scanner) -> Iterator[Place]:
    """Walk through dropout that is an option of a module, or a call in its code."""
    kind = type(module).__name__
    if function := _function_of_option(module):
        route = ROUTES[function]
        site = Site(name, kind, module.dropout, _alpha(module, route))
        yield Place(site, module, Change(route))
    found = calls(module, scanner)
    for call in found:
        if not call.written:
            yield Place(site_of_mask(name, kind, call.rate, call.unreached), module)
            continue
        where = f"{name}.forward".lstrip(".")
        alpha = call.route and _alpha(module, call.route)
        site = Site(where, call.written, call.rate, alpha, call.unreached)
        yield Place(site, module, call.route and Change(call.route))
    yield from _seen_in_a_run(name, module)
    if is_dropout(module) and not found:
        reason = "its forward is its own, and no call in it is known"
        yield Place(Site(name, kind, module.p, None, reason), module)


def site_of_mask(name: str, kind: str, rate: float, unreached: str) -> Site:
    """Return the site of a module that draws a mask in its own code, and may be a mere layer."""
    is_layer = re.search("drop", kind, re.IGNORECASE)
    where = name if is_layer else f"{name}.forward".lstrip(".")
    return Site(where, kind, rate, unreached=unreached)


def _seen_in_a_run(name: str, module: Any) -> Iterator[Place]:
    """Walk through calls in the code of a module that only running it has shown."""
    for route, (written, rate) in getattr(module, "_qsd_found", {}).items():
        site = Site(f"{name}.forward".lstrip("."), written, rate, module._qsd_alphas[route])
        yield Place(site, module)


_RECURRENT = {
    "LSTM": torch.lstm,
    "GRU": torch.gru,
    "RNN_TANH": torch.rnn_tanh,
    "RNN_RELU": torch.rnn_relu,
}


def _function_of_option(module: nn.Module) -> Any:
    """Return the function that drops units for a module whose option ``dropout`` is on."""
    if isinstance(module, nn.MultiheadAttention) and module.dropout:
        return F.multi_head_attention_forward
    # With one layer, there is nothing between the layers to drop.
    if isinstance(module, nn.RNNBase) and module.num_layers > 1 and module.dropout:
        return _RECURRENT[module.mode]
    return None


def _alpha(module: nn.Module, route: Route) -> float | None:
    """Return the alpha that a module has for a function in its code; None if it is not QSD."""
    return module._qsd_alphas.get(route.name) if isinstance(module, Rerouted) else None


def _drops(module: torch.jit.ScriptModule) -> bool:
    try:
        return "dropout" in module.code
    except (AttributeError, RuntimeError):  # a mere container has no code
        return False
