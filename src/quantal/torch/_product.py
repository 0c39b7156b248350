"""The product of a tensor and its coefficients, by torch's own operations."""

from __future__ import annotations

from torch import Tensor

__all__ = ["product"]


def product(x: Tensor, c: Tensor, inplace: bool = False) -> Tensor:
    """Multiply x by c, which has its shape or may be broadcast to it."""
    # Half precision is multiplied in float32 in any case: only the product is rounded.
    return x.mul_(c) if inplace else (x * c).to(x.dtype)
