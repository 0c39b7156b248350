"""Where an NNX model drops units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flax import nnx

from quantal._selection import Place
from quantal.jax._private_api import attention_weights
from quantal.jax._source_scan import DropoutScan
from quantal.jax.nnx._attention import QSDAttention
from quantal.jax.nnx._layer import QSD
from quantal.sites import Site

__all__ = ["places"]


def places(model: Any) -> Iterator[Place]:
    """Walk through every place of a model where units are dropped, each shared module once."""
    functions = (nnx.dot_product_attention, attention_weights())
    scan = DropoutScan(nnx.Module, (nnx.Dropout,), functions)
    for path, module in nnx.iter_graph(model):
        if isinstance(module, nnx.Module):
            name = "/".join(map(str, path))
            if (site := _site(name, module)) is not None:
                yield Place(site, module)
            yield from scan.places(name, module)


def _site(name: str, module: nnx.Module) -> Site | None:
    kind, reason = type(module).__name__, ""
    if isinstance(module, QSD):
        return Site.of(name, "QSD", module)
    if isinstance(module, nnx.Dropout):
        if type(module) is not nnx.Dropout:
            reason = f"{kind} is a class of its own"
        return Site(name, kind, module.rate, unreached=reason)
    if isinstance(module, nnx.MultiHeadAttention) and module.dropout_rate > 0:
        if isinstance(module.attention_fn, QSDAttention):
            return Site(name, "QSD", module.dropout_rate, module.attention_fn.alpha)
        if module.attention_fn is not nnx.dot_product_attention:
            reason = "its attention_fn is not nnx.dot_product_attention"
        elif attention_weights() is None:
            reason = "this version of Flax hides its attention weights"
        return Site(name, kind, module.dropout_rate, unreached=reason)
    return None
