"""The fused path: draw, look-up and product in one kernel, and nothing kept but a seed.

It serves ordinary units on CUDA and ROCm in eager code, where Triton is installed (it comes with
torch's builds for GPUs) and `quantal.torch._self_check` has found it right. All else takes separate
operations, compiled code too: there Inductor fuses look-up and product.

A seed is drawn on the device by torch, so nothing waits, and what restores or captures torch's
streams (checkpoints, CUDA graphs) restores and captures this. The backward pass draws again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quantal.keys import Key
from quantal.torch._launch import multiply_by_key, multiply_by_seed
from quantal.torch._private_api import is_fake, is_plain, transformed
from quantal.torch._self_check import installed, usable
from quantal.torch._tables import Tables

__all__ = ["multiply", "serves"]

_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def serves(x: Tensor) -> bool:
    """Return whether the fused path takes this tensor, for ordinary units."""
    if x.dtype not in _DTYPES or transformed():
        return False
    if is_fake(x):  # has a device, but nothing on it
        return installed(x.device)
    return is_plain(x) and usable(x.device)


def multiply(
    x: Tensor, made: Tables, source: torch.Generator | Key | None, inplace: bool
) -> Tensor:
    """Multiply by coefficients drawn from a generator, torch's own stream, or a portable key."""
    if isinstance(source, Key):
        own, _, call = source.split(3)
        words = own.word0, own.word1, call.level()
        return _Multiply.apply(x, made, None, words, inplace)
    # One in 2⁶⁴ numbers is left out, since the end of the range must be a number too.
    seed = torch.randint(
        -(2**63), 2**63 - 1, (2,), dtype=torch.int64, device=x.device, generator=source
    )
    return _Multiply.apply(x, made, seed, None, inplace)


class _Multiply(torch.autograd.Function):
    """The product with the coefficients, which are drawn again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        made: Tables,
        seed: Tensor | None,
        words: tuple[int, int, int] | None,
        inplace: bool,
    ) -> Tensor:
        ctx.save_for_backward(seed)
        ctx.save_for_forward(seed)
        # The same for all calls, so no concern of saved-tensor hooks.
        ctx.made, ctx.words = made, words
        # Units are numbered as they lie in memory; for a key, and if there are gaps, by their axes.
        in_memory = x.is_contiguous() or (seed is not None and _is_dense(x))
        ctx.order = x.stride() if in_memory else _by_axes(x.shape)
        if inplace:
            ctx.mark_dirty(x)
        y = x if inplace else torch.empty_like(x)
        return _write(y, x, ctx.order, made, seed, words)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (seed,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            given = _in_order(upstream, ctx.order)
            gradient = _Multiply.apply(given, ctx.made, seed, ctx.words, False)
        else:
            gradient = _again(upstream, ctx.order, ctx.made, seed, ctx.words)
        return gradient, None, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _again(tangent, ctx.order, ctx.made, *ctx.saved_tensors, ctx.words)


def _again(x: Tensor, order: Sequence[int], *draw: Any) -> Tensor:
    """Multiply by the coefficients of an earlier draw."""
    return _write(_empty(x, order), x, order, *draw)


def _write(
    y: Tensor,
    x: Tensor,
    order: Sequence[int],
    made: Tables,
    seed: Tensor | None,
    words: tuple[int, int, int] | None,
) -> Tensor:
    """Write into y the product of x and the coefficients of units in that order."""
    given = _in_order(x, order)
    made_in_order = y if _lies(y, order) else _empty(y, order)
    if words is None:
        multiply_by_seed(given, made_in_order, made.values, made.thresholds, seed)
    else:
        multiply_by_key(given, made_in_order, made.values, made.thresholds, *words)
    return y if made_in_order is y else y.copy_(made_in_order)


# --- the order of units -------------------------------------------------------------------------


def _by_axes(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a contiguous tensor."""
    return torch.empty(shape, device="meta").stride()


def _is_dense(x: Tensor) -> bool:
    """Return whether the units of a tensor lie in memory without gaps, in whatever order."""
    end = 1
    for stride, size in sorted(zip(x.stride(), x.shape, strict=True)):
        if size > 1 and stride != end:
            return False
        end *= size
    return True


def _lies(x: Tensor, order: Sequence[int]) -> bool:
    """Return whether a tensor has these strides; those of axes of length 1 mean nothing."""
    axes = zip(x.stride(), order, x.shape, strict=True)
    return all(stride == wanted or size == 1 for stride, wanted, size in axes)


def _empty(x: Tensor, order: Sequence[int]) -> Tensor:
    return torch.empty_strided(x.shape, order, dtype=x.dtype, device=x.device)


def _in_order(x: Tensor, order: Sequence[int]) -> Tensor:
    return x if _lies(x, order) else _empty(x, order).copy_(x)
