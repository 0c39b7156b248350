"""The product of a tensor and its coefficients, by torch's own operations."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["casts_apart", "product", "product_without_graph"]

# Devices on which it is faster to cast first than to compute with two dtypes in one pass over the
# memory.
_CAST_APART = {"cpu"}


def casts_apart(x: Tensor) -> bool:
    """Return whether casts should be operations of their own, on the device of a tensor."""
    return x.device.type in _CAST_APART


def product(x: Tensor, c: Tensor, inplace: bool = False) -> Tensor:
    """Multiply x by c, which has its shape or can be broadcast to it."""
    # Half precision is multiplied in float32 in any case: only the product is rounded.
    if inplace:
        return x.mul_(c)
    y = x * c
    return y if y.dtype is x.dtype else y.to(x.dtype)


def product_without_graph(x: Tensor, c: Tensor, inplace: bool = False) -> Tensor:
    """Do the same where autograd records nothing, and c is new and may be overwritten."""
    if not inplace and c.shape == x.shape and c.dtype == x.dtype and x.is_contiguous():
        return c.mul_(x)  # saves the memory of a tensor
    if inplace or casts_apart(x):
        return product(x, c, inplace)
    return torch.mul(x, c, out=torch.empty_like(x))
