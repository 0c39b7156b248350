"""The fused path: draw, look-up and product in one kernel, and nothing kept but a seed.

It serves ordinary units on CUDA and ROCm in eager code, where Triton is installed (it comes with
torch's builds for GPUs) and `quantal.torch._self_check` has found it right. Everything else takes
separate operations, and so does compiled code, where Inductor fuses look-up and product.

A seed is drawn on the device by torch, so nothing waits, and what restores or captures torch's
streams (checkpoints, CUDA graphs) restores and captures this. The backward pass draws again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantal.keys import Key
from quantal.torch import _launch, _self_check
from quantal.torch._order import by_axes, empty, in_order, is_dense, lies
from quantal.torch._private_api import is_fake, runs_as_it_is
from quantal.torch._product import product, product_without_graph
from quantal.torch._tables import DeviceTables

__all__ = ["draw_seed", "multiply", "multiply_by_seed", "serves"]

_DTYPES = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def serves(x: Tensor) -> bool:
    """Return whether the fused path takes this tensor, for ordinary units."""
    if x.device.type not in _self_check.DEVICES or x.dtype not in _DTYPES or not runs_as_it_is(x):
        return False
    # A fake tensor has a device, but nothing on it that could be tried.
    return _self_check.installed(x.device) if is_fake(x) else _self_check.usable(x.device)


def multiply(
    x: Tensor,
    tables: DeviceTables,
    mask_shape: Sequence[int],
    generator: torch.Generator | Key | None,
    inplace: bool,
) -> Tensor:
    """Multiply by coefficients drawn from a generator, torch's own stream, or a portable key."""
    if not isinstance(generator, Key):
        return multiply_by_seed(x, tables, mask_shape, draw_seed(x.device, generator), inplace)
    own, _, call = generator.split(3)
    drawn = _FusedDraw(tables, tuple(mask_shape), (own.word0, own.word1, call.level()))
    return _FusedMultiply.apply(x, None, drawn, inplace)


def draw_seed(device: torch.device, generator: torch.Generator | None = None) -> Tensor:
    """Draw a seed: two numbers of 64 bits."""
    # One in 2⁶⁴ is left out, since the end of the range must be a number too.
    options: Any = {"dtype": torch.int64, "device": device, "generator": generator}
    return torch.randint(-(2**63), 2**63 - 1, (2,), **options)


def multiply_by_seed(
    x: Tensor, tables: DeviceTables, mask_shape: Sequence[int], seed: Tensor, inplace: bool = False
) -> Tensor:
    """Multiply by the coefficients of a seed, which may be used again."""
    return _FusedMultiply.apply(x, seed, _FusedDraw(tables, tuple(mask_shape), None), inplace)


class _FusedDraw(NamedTuple):
    """All of a draw but its seed, with which it can be repeated.

    Attributes
    ----------
    tables : DeviceTables
        What the law looks up.
    shape : tuple of int
        The shape of the coefficients.
    words : tuple of int or None
        Of a portable key, two words and the level of the call; None if there is a seed.
    """

    tables: DeviceTables
    shape: tuple[int, ...]
    words: tuple[int, int, int] | None

    def write(self, y: Tensor, x: Tensor, order: Sequence[int], seed: Tensor | None) -> Tensor:
        """Write into y the product of x and coefficients, of which each unit has its own."""
        given = in_order(x, order)
        made = y if lies(y, order) else empty(y, order)
        looked_up = self.tables.values, self.tables.thresholds
        if self.words is None:
            _launch.multiply_by_seed(given, made, *looked_up, seed)
        else:
            _launch.multiply_by_key(given, made, *looked_up, *self.words)
        return y if made is y else y.copy_(made)

    def again(self, x: Tensor, order: Sequence[int], seed: Tensor | None) -> Tensor:
        """Return the product of another tensor and the same coefficients."""
        if self.shape == x.shape and serves(x):
            return self.write(empty(x, order), x, order, seed)
        return product(x, self.coefficients(order, seed))

    def coefficients(self, order: Sequence[int], seed: Tensor | None) -> Tensor:
        """Return the coefficients themselves."""
        ones = torch.ones(self.shape, dtype=torch.float32, device=self.tables.values.device)
        return self.write(empty(ones, order), ones, order, seed)


class _FusedMultiply(torch.autograd.Function):
    """The product with the coefficients of a draw, which is repeated to go backward."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, seed: Tensor | None, drawn: _FusedDraw, inplace: bool
    ) -> Tensor:
        ctx.save_for_backward(seed)
        ctx.save_for_forward(seed)
        # The same for all calls but for a few numbers, so no concern of saved-tensor hooks.
        ctx.drawn, ctx.inplace = drawn, inplace
        # Units are numbered as they lie in memory; for a key, and if there are gaps, by their axes.
        own = drawn.shape == x.shape
        as_they_lie = own and (x.is_contiguous() or (seed is not None and is_dense(x)))
        ctx.order = x.stride() if as_they_lie else by_axes(drawn.shape)
        if inplace:
            ctx.mark_dirty(x)
        if not own:
            return product_without_graph(x, drawn.coefficients(ctx.order, seed), inplace)
        return drawn.write(x if inplace else torch.empty_like(x), x, ctx.order, seed)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (seed,) = ctx.saved_tensors
        if torch.is_grad_enabled() and serves(upstream):  # create_graph=True
            own = ctx.drawn.shape == upstream.shape
            given = in_order(upstream, ctx.order) if own else upstream
            gradient = _FusedMultiply.apply(given, seed, ctx.drawn, False)
        else:
            gradient = ctx.drawn.again(upstream, ctx.order, seed)
        return gradient, None, None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        # By operations that autograd knows: the tangent may be differentiated again.
        return product(tangent, ctx.drawn.coefficients(ctx.order, *ctx.saved_tensors), ctx.inplace)
