"""`dilute` for tensors, and the checks of arguments that the layers share with it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from quantal._arguments import axes_as_given, flag
from quantal._errors import FLOATING, wrong_type, wrong_value
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.keys import Key
from quantal.torch._apply import apply_coefficients, zeros
from quantal.torch._private_api import Code, in_backward_pass, in_graph, kind_of_code
from quantal.torch._special_tensors import dilute_special, is_special
from quantal.torch._tables import DeviceTables, tables, tables_in_graph

__all__ = [
    "check_axes",
    "check_generator",
    "check_input",
    "check_tensor",
    "dilute",
    "dilute_by",
    "number",
    "refuse_recomputation",
]

_LAYOUTS = (torch.strided, torch.jagged, torch.sparse_coo, torch.sparse_csr)


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
        A floating-point tensor on any device; where nothing is drawn, any tensor.
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
    if type(x) is not Tensor and has_torch_function_unary(x):  # torch.fx and others record it
        return handle_torch_function(
            dilute, (x,), x, rate, alpha, generator=generator, training=training, vary=vary,
            unit_mean=unit_mean, broadcast_dims=broadcast_dims, p_broadcast_dims=p_broadcast_dims,
            inplace=inplace,
        )  # fmt: skip
    law = Dilution(number(rate), number(alpha), vary=vary, unit_mean=unit_mean)
    check_tensor(x)
    check_generator(generator)
    return dilute_by(
        law, x, generator, flag("training", training), flag("inplace", inplace),
        axes_as_given("broadcast_dims", broadcast_dims),
        axes_as_given("p_broadcast_dims", p_broadcast_dims),
    )  # fmt: skip


def dilute_by(
    law: Dilution,
    x: Tensor,
    generator: torch.Generator | Key | None,
    training: bool,
    inplace: bool,
    broadcast_dims: Axes = (),
    p_broadcast_dims: Axes = (),
) -> Tensor:
    """Dilute a tensor by a law, with arguments of `dilute` that were checked."""
    if not training or law.rate == 0:
        check_axes(x, broadcast_dims, p_broadcast_dims)
        return x
    code = kind_of_code(x)
    if code is not Code.EAGER and is_special(x, code):
        again = functools.partial(
            dilute_by, law, generator=generator, training=training, inplace=inplace
        )
        return dilute_special(x, again, broadcast_dims, p_broadcast_dims, inplace)
    mask_shape, p_shape = check_input(x, broadcast_dims, p_broadcast_dims)
    if law.rate == 1:
        return zeros(x, inplace)
    shared = p_shape is not None
    if in_graph(code):
        numbers = law.rate, law.alpha, law.vary, law.unit_mean
        looked_up = DeviceTables(*tables_in_graph(*numbers, shared, x.device))
    else:
        looked_up = tables(law, shared, x.device)
        if isinstance(generator, torch.Generator):
            refuse_recomputation(generator)
    return apply_coefficients(x, looked_up, mask_shape, p_shape, generator, inplace, code)


def check_tensor(x: Any) -> None:
    """Refuse what is no tensor."""
    if not isinstance(x, Tensor):
        raise wrong_type("x", "a torch.Tensor", type(x))


def check_axes(x: Tensor, broadcast_dims: Axes, p_broadcast_dims: Axes) -> None:
    """Refuse axes that x does not have, where nothing is drawn and x may be of any dtype."""
    if not broadcast_dims == () == p_broadcast_dims:
        coefficient_shapes((1,) * x.ndim, broadcast_dims, p_broadcast_dims)


def check_input(
    x: Tensor, broadcast_dims: Axes, p_broadcast_dims: Axes
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the shapes of coefficients and probabilities, as `coefficient_shapes` does."""
    if not x.is_floating_point():
        raise wrong_type("x", FLOATING, x.dtype)
    if x.dtype.itemsize < 2:  # torch does not calculate with them
        raise wrong_type("x", f"{FLOATING} of 16 bits or more", x.dtype)
    if x.layout not in _LAYOUTS:
        raise wrong_type("x", "a tensor that is dense, or sparse in COO or CSR", x.layout)
    if broadcast_dims == () == p_broadcast_dims:  # nearly always, and in each step
        return x.shape, None
    return coefficient_shapes(x.shape, broadcast_dims, p_broadcast_dims)


def number(value: Any) -> Any:
    """Return the number in a tensor without axes; anything else as it is."""
    if isinstance(value, Tensor) and value.ndim == 0 and not value.is_meta:  # which has no number
        try:
            return value.item()
        except Exception:  # nor has a fake tensor, or one under torch.func.vmap
            return value
    return value


def check_generator(generator: Any) -> None:
    """Refuse what is no source of randomness."""
    if generator is not None and not isinstance(generator, (torch.Generator, Key)):
        raise wrong_type("generator", "a torch.Generator, a quantal.key or None", generator)


def refuse_recomputation(generator: torch.Generator | Key) -> None:
    """Refuse a generator or a key where a checkpoint runs the forward pass a second time.

    A forward pass inside a backward pass is activation checkpointing. It restores only torch's own
    streams: any other source would draw other masks than before, and the gradient would be wrong.
    """
    if in_backward_pass():
        expected = "None, or dilute with a key, where a checkpoint recomputes the forward pass"
        raise wrong_value("generator", expected, generator)
