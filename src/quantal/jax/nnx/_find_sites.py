"""Where an NNX model drops units."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flax import nnx

from quantal._errors import wrong_type
from quantal._selection import Place
from quantal.jax._parameters import described
from quantal.jax._private_api import attention_weights
from quantal.jax._source_scan import DropoutScan
from quantal.jax.nnx._attention import QSDAttention, is_plain_attention
from quantal.jax.nnx._bridge import bridged_site
from quantal.jax.nnx._layer import QSD
from quantal.sites import Site

__all__ = ["find_sites", "modules_of"]


def find_sites(model: Any) -> Iterator[Place]:
    """Walk through every place of a model where units are dropped, each shared module once."""
    modules = modules_of(model)
    known = set(map(id, modules.values()))
    scan = DropoutScan(nnx.Module, (nnx.Dropout,), (nnx.dot_product_attention, attention_weights()))
    for name, module in modules.items():
        if (site := _site(name, module)) is not None:
            yield Place(site, module)
        yield from scan.places(name, module, known)


def modules_of(model: Any) -> dict[str, Any]:
    """Return the modules of a model by their paths; an error, if it has none."""
    try:
        nodes = list(nnx.iter_graph(model))
    except (TypeError, ValueError):  # what NNX says of things that it does not know
        nodes = []
    modules = {
        "/".join(map(str, path)): node for path, node in nodes if isinstance(node, nnx.Module)
    }
    if not modules:
        raise wrong_type("model", "an nnx.Module, or a tree of such", model)
    return modules


def _site(name: str, module: nnx.Module) -> Site | None:
    kind, reason = type(module).__name__, ""
    if isinstance(module, QSD):
        return Site.of(name, "QSD", described(module))
    if isinstance(module, nnx.Dropout):
        if type(module) is not nnx.Dropout:
            reason = f"{kind} is a class of its own"
        return Site(name, kind, module.rate, unreached=reason)
    if isinstance(module, nnx.MultiHeadAttention) and module.dropout_rate > 0:
        if isinstance(module.attention_fn, QSDAttention):
            return Site(name, "QSD", module.dropout_rate, module.attention_fn.alpha)
        if not is_plain_attention(module.attention_fn):
            reason = "its attention_fn is not nnx.dot_product_attention"
        elif attention_weights() is None:
            reason = "this version of Flax hides its attention weights"
        return Site(name, kind, module.dropout_rate, unreached=reason)
    return bridged_site(name, module)
