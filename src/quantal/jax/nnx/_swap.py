"""How a module of NNX becomes QSD, and dropout again: the same object with another class."""

from __future__ import annotations

from typing import Any

from flax import nnx

from quantal.jax.nnx._attention import QSDAttention
from quantal.jax.nnx._bridge import linen_module_in, put_linen_module
from quantal.jax.nnx._layer import QSD

__all__ = ["SwappedModule", "swap", "unswap"]


class SwappedModule(QSD):
    """A QSD that `convert` put in the place of an ``nnx.Dropout``, which `revert` finds."""


# The attributes that QSD has beyond those of dropout.
_QSD_ALONE = {"alpha": None, "p_broadcast_dims": (), "vary": "pq", "unit_mean": False}


def swap(module: Any, alpha: float) -> None:
    """Put QSD in the place of a module's dropout."""
    if isinstance(module, nnx.MultiHeadAttention):
        module.attention_fn = QSDAttention(alpha, module.attention_fn)
    elif isinstance(module, nnx.Dropout):
        _become(SwappedModule, module)
        for name, value in (_QSD_ALONE | {"alpha": alpha}).items():
            setattr(module, name, value)
    elif (inner := linen_module_in(module)) is not None:
        from quantal.jax import linen

        put_linen_module(module, linen.convert(inner, alpha))


def unswap(module: Any) -> None:
    """Undo `swap`, where it was done."""
    if isinstance(module, SwappedModule):
        for name in _QSD_ALONE:
            delattr(module, name)
        _become(nnx.Dropout, module)
    elif isinstance(getattr(module, "attention_fn", None), QSDAttention):
        module.attention_fn = module.attention_fn.native
    elif (inner := linen_module_in(module)) is not None:
        from quantal.jax import linen

        put_linen_module(module, linen.revert(inner))


def _become(kind: type, module: nnx.Module) -> None:
    # NNX would take a plain assignment for a new attribute of the model.
    object.__setattr__(module, "__class__", kind)
