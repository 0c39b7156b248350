"""`dilute` for tensors, and the multiplication that keeps two bytes a unit for its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quantal.checks import FLOATING, wrong_type, wrong_value
from quantal.dilution import Dilution, Vary
from quantal.granularity import Axes, coefficient_shapes
from quantal.keys import Key
from quantal.torch.draws import Native, draw, draw_by_key, draw_by_key_in_graph
from quantal.torch.tables import Tables, look_up, tables, tables_in_graph

__all__ = ["check_generator", "check_input", "dilute", "spread", "zeros"]


def dilute(
    x: Tensor,
    rate: float,
    alpha: float | None = None,
    *,
    generator: torch.Generator | Key | None = None,
    training: bool = True,
    vary: Vary = "pq",
    unit_mean: bool = False,
    broadcast_dims: Axes = (),
    p_broadcast_dims: Axes = (),
    inplace: bool = False,
) -> Tensor:
    """Dilute a tensor; see `quantal.dilute`.

    Parameters
    ----------
    x : Tensor
        A floating-point tensor on any device.
    rate, alpha, vary, unit_mean
        As in `quantal.Dilution`.
    generator : torch.Generator, quantal.key or None
        The source of randomness; None is torch's own stream of that device, as for dropout. A key
        gives the same coefficients in every framework.
    training : bool
        False returns x itself, as does a rate of 0.
    broadcast_dims, p_broadcast_dims
        As in `quantal.dilute`.
    inplace : bool
        Write the result into x.

    Examples
    --------
    >>> import quantal
    >>> dilute(torch.ones(2, 4), 0.5, 1.0, generator=quantal.key(0))
    tensor([[0.6197, 3.8779, 0.0000, 0.0000],
            [2.8754, 0.0000, 1.8865, 0.0000]])
    """
    law = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    mask_shape, p_shape = check_input(x, broadcast_dims, p_broadcast_dims)
    check_generator(generator)
    if not training or law.rate == 0:
        return x
    if law.rate == 1:
        return zeros(x, inplace)
    shared = p_shape is not None
    if torch.compiler.is_compiling():
        made = Tables(*tables_in_graph(rate, alpha, vary, unit_mean, shared, x.device))
    else:
        made = tables(law, shared, x.device)
    return spread(x, made, mask_shape, p_shape, generator, None, inplace)


def spread(
    x: Tensor,
    made: Tables,
    mask_shape: tuple[int, ...],
    p_shape: tuple[int, ...] | None,
    generator: torch.Generator | Key | None,
    calls: Tensor | None,
    inplace: bool,
) -> Tensor:
    """Draw coefficients and multiply by them; ``calls`` is the count to fold into a key."""
    if isinstance(generator, Key):
        draw_ = draw_by_key_in_graph if torch.compiler.is_compiling() else draw_by_key
        words = generator.word0, generator.word1
        cell, row = draw_(made.thresholds, mask_shape, p_shape, *words, calls)
    else:
        source = Native(generator, x.device)
        cell, row = draw(made.thresholds, mask_shape, p_shape, source)
    if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        # There the bare product is better: the compiler chooses what to keep, and every
        # transform knows it. (An autograd.Function that they accept is slower to call.)
        return _product(x, look_up(made.values, cell, row), inplace)
    return _Multiply.apply(x, made.values, cell, row, inplace)


def check_input(
    x: Tensor, broadcast_dims: Axes, p_broadcast_dims: Axes
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the shapes of coefficients and probabilities, as `coefficient_shapes` does."""
    if not x.is_floating_point():
        raise wrong_type("x", FLOATING, x.dtype)
    return coefficient_shapes(x.shape, broadcast_dims, p_broadcast_dims)


def check_generator(generator: Any, counted: bool = False) -> None:
    """Refuse what is no source of randomness, or cannot draw again what it has drawn before.

    ``counted`` says that a key stands for a different draw in every call.
    """
    if not isinstance(generator, torch.Generator | Key | None):
        raise wrong_type("generator", "a torch.Generator, a quantal.key or None", generator)
    if generator is None or (isinstance(generator, Key) and not counted):
        return
    # A forward pass inside a backward pass is activation checkpointing, which restores only
    # torch's own streams: this would be another draw than the first, and a wrong gradient.
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        expected = "None, or dilute with a key, where a checkpoint recomputes the forward pass"
        raise wrong_value("generator", expected, generator)


def zeros(x: Tensor, inplace: bool) -> Tensor:
    """Return the zeros of rate 1, also for an infinite x, with zeros for a gradient."""
    everywhere = torch.ones((), dtype=torch.bool, device=x.device)
    return x.masked_fill_(everywhere, 0) if inplace else x.masked_fill(everywhere, 0)


def _product(x: Tensor, c: Tensor, inplace: bool) -> Tensor:
    # Half precision is multiplied in float32 in any case: only the product is rounded.
    return x.mul_(c) if inplace else (x * c).to(x.dtype)


class _Multiply(torch.autograd.Function):
    """The product with the coefficients, which are looked up again in the backward pass.

    So it keeps the 16 bits a unit that index the table, where dropout keeps a float.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, values: Tensor, cell: Tensor, row: Tensor, inplace: bool
    ) -> Tensor:
        ctx.save_for_backward(cell, row)
        ctx.save_for_forward(cell, row)
        ctx.values = values  # the same for all calls, so no concern of saved-tensor hooks
        c = look_up(values, cell, row)
        if inplace:
            ctx.mark_dirty(x)
        elif c.shape == x.shape and c.dtype == x.dtype and x.is_contiguous():
            return c.mul_(x)  # spares a tensor
        return _product(x, c, inplace)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return _Multiply.apply(upstream, ctx.values, *ctx.saved_tensors, False), *[None] * 4

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return _product(tangent, look_up(ctx.values, *ctx.saved_tensors), False)
