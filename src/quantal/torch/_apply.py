"""Draw coefficients and multiply a tensor by them, for `dilute` and every layer."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from quantal._errors import wrong_value
from quantal.keys import LEVELS, Key
from quantal.torch import _fused
from quantal.torch._draws import SharedDraw, UnitDraw, draw, draw_by_key_in_graph
from quantal.torch._private_api import Code, is_plain, kind_of_code
from quantal.torch._product import product, product_without_graph
from quantal.torch._random_bits import LOWEST, Shape, source
from quantal.torch._special_tensors import (
    coefficients_like,
    distributed_by_key,
    is_distributed,
)
from quantal.torch._tables import DeviceTables

__all__ = ["apply_coefficients", "zeros"]

_FEW = 2**16
"""Up to this many units, the backward pass keeps the coefficients instead of looking them up again:
that costs a little memory and saves time."""


def apply_coefficients(
    x: Tensor,
    tables: DeviceTables,
    mask_shape: Shape,
    p_shape: Shape | None,
    generator: torch.Generator | Key | None,
    inplace: bool,
    code: Code,
    calls: Tensor | None = None,
) -> Tensor:
    """Draw coefficients and multiply a tensor by them.

    Parameters
    ----------
    x : Tensor
        The tensor, of a floating-point dtype.
    tables : DeviceTables
        What the law looks up, on the device of x.
    mask_shape, p_shape : sequence of int
        The shapes of the coefficients and of the retain probabilities, as `coefficient_shapes`
        returns them.
    generator : torch.Generator, quantal.key or None
        The source of randomness.
    inplace : bool
        Write the result into x.
    code : Code
        The kind of code that this call is part of.
    calls : Tensor, optional
        In compiled code, the number of calls so far: it is folded into the key, and increased.
    """
    if p_shape is None:
        if _fused.serves(x):
            return _fused.multiply(x, tables, mask_shape, generator, inplace)
        if code is Code.EAGER and x.is_cpu and x.numel() <= _FEW and not isinstance(generator, Key):
            return _multiply_few(x, tables, mask_shape, generator, inplace)
    if code is Code.EAGER:
        drawn = draw(tables, mask_shape, p_shape, source(generator, x.device, code))
        if x.numel() <= _FEW:
            return product(x, drawn.look_up(tables, code), inplace)
        return _Multiply.apply(x, tables, drawn, inplace)
    # A plain product: a compiler decides by itself what to keep for the backward pass, and every
    # transform can handle it.
    c = _coefficients(x, tables, mask_shape, p_shape, generator, code, calls)
    return product(x, c, inplace)


def _multiply_few(
    x: Tensor,
    tables: DeviceTables,
    shape: Shape,
    generator: torch.Generator | None,
    inplace: bool,
) -> Tensor:
    """Draw and multiply few units on a CPU, where calls of functions cost more than their work.

    One function does here what several do elsewhere; it draws the same as `TorchStream`.
    """
    count = math.prod(shape)
    words = torch.empty(-(-count // 4), dtype=torch.int64, device="cpu")
    cell = words.random_(LOWEST, None, generator=generator).view(torch.int16)
    if count % 4:
        cell = cell.narrow(0, 0, count)
    level = torch.randint(0, LEVELS, (), dtype=torch.int32, device="cpu", generator=generator)
    start = tables.second if level.item() < tables.thresholds.item() else tables.first
    c = tables.values.index_select(0, cell.int().add_(start)).resize_(shape)
    return product(x, c, inplace)


def _coefficients(
    x: Tensor,
    tables: DeviceTables,
    mask_shape: Shape,
    p_shape: Shape | None,
    generator: torch.Generator | Key | None,
    code: Code,
    calls: Tensor | None,
) -> Tensor:
    """Draw coefficients in code that is compiled, recorded or transformed."""
    distributed = not is_plain(x) and is_distributed(x)
    if generator is None and (distributed or code is Code.TRACED or code is Code.EXPORTED):
        return coefficients_like(x, tables, mask_shape, p_shape)
    if distributed and isinstance(generator, Key) and code is Code.TRANSFORMED:
        return distributed_by_key(x, tables, mask_shape, p_shape, generator)
    if distributed or code is Code.TRACED:
        what = "a DTensor" if distributed else "torch.jit.trace"
        raise wrong_value("generator", f"None for {what}", generator)
    if code is Code.TRANSFORMED:
        drawn = draw(tables, mask_shape, p_shape, source(generator, x.device, code))
    else:
        drawn = _draw_in_graph(x, tables, mask_shape, p_shape, generator, calls)
    return drawn.look_up(tables, code)


def zeros(x: Tensor, inplace: bool) -> Tensor:
    """Return zeros for a rate of 1, even where x is infinite; the gradient is zero, too."""
    if x.is_sparse or x.layout is torch.sparse_csr:  # which cannot be filled
        return product(x, x.new_zeros((), layout=torch.strided), inplace)
    everywhere = torch.ones((), dtype=torch.bool, device=x.device)
    return x.masked_fill_(everywhere, 0) if inplace else x.masked_fill(everywhere, 0)


def _draw_in_graph(
    x: Tensor,
    tables: DeviceTables,
    mask_shape: Shape,
    p_shape: Shape | None,
    generator: torch.Generator | Key | None,
    calls: Tensor | None,
) -> UnitDraw | SharedDraw:
    if isinstance(generator, Key):
        words = generator.word0, generator.word1
        cell, other = draw_by_key_in_graph(tables, mask_shape, p_shape, *words, calls)
        return UnitDraw(cell, other, mask_shape) if p_shape is None else SharedDraw(cell, other)
    if generator is None:
        return draw(tables, mask_shape, p_shape, source(None, x.device, Code.COMPILED))

    # A graph cannot use a generator, so it is split here; with fullgraph=True, torch raises.
    # (A decorator would load the compiler at import.)
    def outside() -> UnitDraw | SharedDraw:
        return draw(tables, mask_shape, p_shape, source(generator, x.device, Code.EAGER))

    return torch.compiler.disable(outside)()


class _Multiply(torch.autograd.Function):
    """The product with the coefficients of a draw, which the backward pass looks up again.

    For that it keeps the 16 bits of each unit that index the table, where dropout keeps a float.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, tables: DeviceTables, drawn: UnitDraw | SharedDraw, inplace: bool
    ) -> Tensor:
        cell, other, *shape = drawn
        ctx.save_for_backward(cell, other)
        ctx.save_for_forward(cell, other)
        # Tables are the same for all calls, so saved-tensor hooks need not see them.
        ctx.tables, ctx.kind, ctx.shape = tables, type(drawn), shape
        ctx.inplace = inplace
        if inplace:
            ctx.mark_dirty(x)
        return product_without_graph(x, drawn.look_up(tables, Code.EAGER), inplace)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        drawn = ctx.kind(*ctx.saved_tensors, *ctx.shape)
        code = kind_of_code(upstream)  # not that of the forward pass, if gradients are batched
        if code is not Code.EAGER:
            gradient = product(upstream, drawn.look_up(ctx.tables, code))
        elif torch.is_grad_enabled():  # create_graph=True
            gradient = _Multiply.apply(upstream, ctx.tables, drawn, False)
        else:
            gradient = product_without_graph(upstream, drawn.look_up(ctx.tables, code))
        return gradient, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        drawn = ctx.kind(*ctx.saved_tensors, *ctx.shape)
        # Not as in eager code: the tangent may be of another kind than the input.
        return product(tangent, drawn.look_up(ctx.tables, Code.TRANSFORMED), ctx.inplace)
