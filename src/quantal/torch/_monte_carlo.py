"""Monte-Carlo predictions: a model in evaluation, but for its QSD."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from quantal.sites import Prediction, count_of_draws
from quantal.torch._find_sites import places

__all__ = ["masks_on", "predict_mc"]


@contextlib.contextmanager
def masks_on(model: nn.Module, native: bool = False) -> Iterator[None]:
    """Within it, the model is in evaluation, except that its QSD draws.

    Parameters
    ----------
    model : nn.Module
        The model. Every module has its own mode back afterwards, also after an exception.
    native : bool
        Whether torch's own dropout draws too.

    Examples
    --------
    >>> from quantal.torch import QSD
    >>> model = nn.Sequential(nn.BatchNorm1d(4), QSD(0.5, 1.0)).eval()
    >>> with masks_on(model):
    ...     [module.training for module in model]
    [False, True]
    """
    drawing = {p.module for p in places(model) if native or p.site.alpha is not None}
    if not drawing:
        what = "QSD or dropout" if native else "QSD; with native=True, dropout will do"
        raise ValueError(f"model: expected one with {what}. Received: none in sites(model)")
    modes = {module: module.training for module in model.modules()}
    try:
        for module in modes:
            module.training = module in drawing or _would_skip(module, drawing)
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def predict_mc(model: nn.Module, x: Any, n: int, *, native: bool = False) -> Prediction:
    """Predict n times, each time with other masks.

    Parameters
    ----------
    model : nn.Module
        The model, whatever its mode; see `masks_on`.
    x : tensor, tuple, list or mapping
        Its input; a tuple or list holds several, a mapping those with names.
    n : int
        How many predictions, at least 2. One at a time is kept, and no gradients.
    native : bool
        Whether torch's own dropout draws too.

    Returns
    -------
    Prediction
        ``mean`` and ``std`` (with n - 1), both structured as the model's output. What is no
        floating-point tensor in it is that of the last prediction.

    Notes
    -----
    The draws come from torch's own stream: ``torch.manual_seed`` repeats them.

    Examples
    --------
    >>> from quantal.torch import QSD
    >>> mean, std = predict_mc(QSD(0.5, 1.0), torch.ones(3), n=10)
    >>> mean.shape, std.shape
    (torch.Size([3]), torch.Size([3]))
    """
    n = count_of_draws(n)
    named = isinstance(x, Mapping)
    args = () if named else tuple(x) if isinstance(x, tuple | list) else (x,)
    with masks_on(model, native=native), torch.no_grad():
        for count in range(1, n + 1):
            leaves, structure = pytree.tree_flatten(model(*args, **(x if named else {})))
            if count == 1:
                means, squares = _zeros(leaves), _zeros(leaves)
            for leaf, mean, square in zip(leaves, means, squares, strict=True):
                if mean is not None:  # Welford's way, which does not cancel digits
                    change = leaf - mean
                    mean += change / count
                    square += change * (leaf - mean)
    spread = [None if s is None else (s / (n - 1)).sqrt() for s in squares]
    return Prediction(
        *(
            pytree.tree_unflatten(
                [
                    leaf if part is None else part.to(leaf.dtype)
                    for leaf, part in zip(leaves, parts, strict=True)
                ],
                structure,
            )
            for parts in (means, spread)
        )
    )


def _zeros(leaves: list[Any]) -> list[Tensor | None]:
    """Return where to sum up the floating-point tensors, in single precision at least."""
    return [
        torch.zeros_like(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32))
        if isinstance(leaf, Tensor) and leaf.is_floating_point()
        else None
        for leaf in leaves
    ]


def _would_skip(module: nn.Module, drawing: set[nn.Module]) -> bool:
    """Whether a module in evaluation takes a fused path past those that are to draw."""
    fused = isinstance(module, nn.TransformerEncoderLayer)
    return fused and not drawing.isdisjoint(module.modules())
