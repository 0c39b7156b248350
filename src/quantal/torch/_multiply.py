"""The product of a tensor and its coefficients, which keeps two bytes a unit for its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quantal.torch._private_api import transformed
from quantal.torch._tables import Tables

__all__ = ["multiply", "zeros"]


def multiply(
    x: Tensor, made: Tables, cell: Tensor, row: Tensor, shape: tuple[int, ...], inplace: bool
) -> Tensor:
    """Multiply by the coefficients, of that shape, that a draw stands for."""
    if transformed():
        # There the bare product is better: the compiler chooses what to keep, and every
        # transform knows it. (An autograd.Function that they accept is slower to call.)
        return _product(x, made.look_up(cell, row, shape), inplace)
    return _Multiply.apply(x, made, cell, row, shape, inplace)


def zeros(x: Tensor, inplace: bool) -> Tensor:
    """Return the zeros of rate 1, also for an infinite x, with zeros for a gradient."""
    everywhere = torch.ones((), dtype=torch.bool, device=x.device)
    return x.masked_fill_(everywhere, 0) if inplace else x.masked_fill(everywhere, 0)


def _product(x: Tensor, c: Tensor, inplace: bool = False) -> Tensor:
    # Half precision is multiplied in float32 in any case: only the product is rounded.
    return x.mul_(c) if inplace else (x * c).to(x.dtype)


class _Multiply(torch.autograd.Function):
    """The product with the coefficients, which are looked up again in the backward pass.

    So it keeps the 16 bits a unit that index the table, where dropout keeps a float.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        made: Tables,
        cell: Tensor,
        row: Tensor,
        shape: tuple[int, ...],
        inplace: bool,
    ) -> Tensor:
        ctx.save_for_backward(cell, row)
        ctx.save_for_forward(cell, row)
        # The same for all calls, so no concern of saved-tensor hooks.
        ctx.made, ctx.shape = made, shape
        if inplace:
            ctx.mark_dirty(x)
        return _Multiply.product(x, made.look_up(cell, row, shape), inplace)

    @staticmethod
    def product(x: Tensor, c: Tensor, inplace: bool = False) -> Tensor:
        if c.shape == x.shape and c.dtype == x.dtype and x.is_contiguous() and not inplace:
            return c.mul_(x)  # spares a tensor
        return _product(x, c, inplace)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        cell, row = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            gradient = _Multiply.apply(upstream, ctx.made, cell, row, ctx.shape, False)
        else:
            gradient = _Multiply.product(upstream, ctx.made.look_up(cell, row, ctx.shape))
        return gradient, None, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _product(tangent, ctx.made.look_up(*ctx.saved_tensors, ctx.shape))
