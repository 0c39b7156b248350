"""The order in which the units of a tensor lie in memory, as its strides say it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["by_axes", "empty", "in_order", "is_dense", "lies"]


def by_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor.

    Examples
    --------
    >>> by_axes((2, 3, 4))
    (12, 4, 1)
    """
    strides: tuple[int, ...] = torch.empty(shape, device="meta").stride()
    return strides


def is_dense(x: Tensor) -> bool:
    """Return whether units lie without gaps or overlaps, in whatever order.

    Examples
    --------
    >>> is_dense(torch.ones(2, 3).T), is_dense(torch.ones(2, 3)[:, :2])
    (True, False)
    """
    end = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size != 1 and stride != end:
            return False
        end *= size
    return True


def lies(x: Tensor, order: Sequence[int]) -> bool:
    """Return whether a tensor has these strides; those of axes of length 1 mean nothing."""
    axes = zip(x.stride(), order, x.shape, strict=True)
    return all(stride == wanted or size == 1 for stride, wanted, size in axes)


def empty(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return memory for a tensor like x, in this order."""
    return torch.empty_strided(x.shape, order, dtype=x.dtype, device=x.device)


def in_order(x: Tensor, order: Sequence[int]) -> Tensor:
    """Return x as it lies in this order: itself or a copy."""
    return x if lies(x, order) else empty(x, order).copy_(x)
