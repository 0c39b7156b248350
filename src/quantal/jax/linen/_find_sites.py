"""Where Linen modules drop units, found out for each module when it runs."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, cast

from flax import linen as nn

from quantal._selection import Place
from quantal.jax._parameters import described
from quantal.jax._source_scan import DropoutScan
from quantal.jax.linen._attention import QSDDotProductAttention
from quantal.jax.linen._layer import QSD
from quantal.sites import Site

__all__ = ["Record", "places_in_code", "site_of"]

_FUNCTIONS = (nn.dot_product_attention, nn.dot_product_attention_weights)


class Record:
    """The places that a run passes through.

    Parameters
    ----------
    quiet : bool
        Whether they draw nothing meanwhile, and so need no random streams.
    """

    def __init__(self, quiet: bool = True) -> None:
        self.quiet = quiet
        self.places: dict[tuple[str, str], Place] = {}

    def add(self, place: Place) -> None:
        """Keep a place; a run passes through shared modules more than once."""
        self.places.setdefault((place.site.name, place.site.unreached), place)


def site_of(module: Any) -> Site | None:
    """Return the site of a module that drops units by itself; of any other, None."""
    name, kind, reason = "/".join(module.path), type(module).__name__, ""
    if isinstance(module, QSD):
        return Site.of(name, "QSD", described(module))
    if isinstance(module, nn.Dropout):
        # A layer that nn.vmap and the like have lifted is met here as what it was before.
        if type(module).__call__ is not nn.Dropout.__call__:
            reason = f"{kind} is a class of its own"
        return Site(name, kind, module.rate, unreached=reason)
    if isinstance(module, nn.MultiHeadDotProductAttention) and module.dropout_rate > 0:
        if isinstance(module.attention_fn, QSDDotProductAttention):  # SelfAttention calls its base
            return Site(name, "QSD", module.dropout_rate, module.attention_fn.alpha)
        if module.attention_fn is not nn.dot_product_attention:
            reason = "its attention_fn is not nn.dot_product_attention"
        return Site(name, kind, module.dropout_rate, unreached=reason)
    return None


def places_in_code(module: nn.Module) -> list[Place]:
    """Return the places in the code of a module's class that are not modules themselves."""
    name = "/".join(module.path)
    return [
        Place(replace(place.site, name=name), module, place.how)
        for place in _places_in_code(cast("Any", type(module)))
    ]


@functools.lru_cache(maxsize=1024)  # a class is read once, and not each time that it runs
def _places_in_code(kind: Any) -> tuple[Place, ...]:
    return tuple(DropoutScan(nn.Module, functions=_FUNCTIONS).places("", kind))
