"""`dilute` for tensors, and the steps that the layers share with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quantal._errors import FLOATING, wrong_type, wrong_value
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.keys import Key
from quantal.torch import _fused
from quantal.torch._multiply import multiply, zeros
from quantal.torch._portable_bits import portable
from quantal.torch._random_bits import Native, draw, draw_by_key_in_graph
from quantal.torch._tables import Tables, tables, tables_in_graph

__all__ = ["check_generator", "check_input", "dilute", "spread"]


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
    """Draw coefficients and multiply by them; ``calls``, in a graph, is folded into a key."""
    if p_shape is None and tuple(mask_shape) == tuple(x.shape) and _fused.serves(x):
        return _fused.multiply(x, made, generator, inplace)
    if isinstance(generator, torch.Generator) and torch.compiler.is_compiling():
        # No graph knows generators: this breaks it, and one that must be whole is torch's error.
        # (A decorator would load the compiler at import.)
        outside = torch.compiler.disable(draw)
        drawn: tuple[Tensor, Tensor] = outside(
            made, mask_shape, p_shape, Native(generator, x.device)
        )
    elif not isinstance(generator, Key):
        drawn = draw(made, mask_shape, p_shape, Native(generator, x.device))
    elif torch.compiler.is_compiling():
        words = generator.word0, generator.word1
        drawn = draw_by_key_in_graph(made, mask_shape, p_shape, *words, calls)
    else:
        drawn = draw(made, mask_shape, p_shape, portable(generator, x.device))
    return multiply(x, made, *drawn, mask_shape, inplace)


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
