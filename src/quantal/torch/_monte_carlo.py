"""Monte-Carlo predictions: the model is in evaluation mode, except for its QSD."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from quantal._prediction import Prediction, count_of_draws, places_that_draw
from quantal._switches import Switches
from quantal.torch._find_sites import find_sites
from quantal.torch._private_api import flatten

__all__ = ["masks_on", "predict_mc"]

Model = TypeVar("Model", bound=nn.Module)


@contextlib.contextmanager
def masks_on(model: Model, *, native: bool = False) -> Iterator[Model]:
    """Put the model into evaluation mode within a block, except that its QSD draws.

    Parameters
    ----------
    model : nn.Module
        The model. Every module has its own mode back afterwards, also after an exception.
    native : bool
        Whether torch's own dropout draws too.

    Yields
    ------
    nn.Module
        The model.

    Notes
    -----
    A mode belongs to a model, not to a thread: while one thread is in this context, the others
    see the masks too. Several may be in it at once, with the same ``native``.

    Examples
    --------
    >>> from quantal.torch import QSD
    >>> model = nn.Sequential(nn.BatchNorm1d(4), QSD(0.5, 1.0)).eval()
    >>> with masks_on(model):
    ...     [module.training for module in model]
    [False, True]
    """
    drawing = {place.module for place in places_that_draw(find_sites(model), native)}
    wanted = {m: m in drawing or _would_skip(m, drawing) for m in model.modules()}
    with _MODES.set(wanted.items()):
        yield model


def _set_mode(module: nn.Module, training: bool) -> None:
    module.training = training


_MODES = Switches(lambda module: bool(module.training), _set_mode)


def predict_mc(
    model: nn.Module,
    x: Any,
    n: int,
    *,
    native: bool = False,
    output: Callable[[Any], Any] | None = None,
    samples: bool = False,
) -> Prediction:
    """Predict n times, each time with other masks.

    Parameters
    ----------
    model : nn.Module
        The model, whatever its mode; see `masks_on`.
    x : tensor, tuple, list or mapping
        Its input; a tuple or list holds several, a mapping those with names.
    n : int
        How many predictions, at least 2. No gradients are kept.
    native : bool
        Whether torch's own dropout draws too.
    output : function, optional
        Applied to each prediction before they are averaged: a softmax, say.
    samples : bool
        Return the predictions, too; otherwise one at a time is kept.

    Returns
    -------
    Prediction
        ``mean`` and ``std`` (with n - 1), both structured as the model's output, and ``samples``:
        None or, if asked for, the same structure with n predictions along a new first axis. An
        output that is not a floating-point tensor is that of the last prediction.

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
    n = count_of_draws(n, samples, output=output)
    named = isinstance(x, Mapping)
    args = () if named else tuple(x) if isinstance(x, tuple | list) else (x,)
    kept = []
    with masks_on(model, native=native), torch.no_grad():
        for count in range(1, n + 1):
            result = model(*args, **(x if named else {}))
            leaves, filled = flatten(output(result) if output else result)
            if count == 1:
                means, squares = _zeros(leaves), _zeros(leaves)
            for leaf, mean, square in zip(leaves, means, squares, strict=True):
                if mean is not None:  # Welford's method, which loses no digits
                    change = leaf - mean
                    mean += change / count
                    square += change * (leaf - mean)
            if samples:
                kept.append(leaves)
    stds = [None if s is None else (s / (n - 1)).sqrt() for s in squares]

    def structured(parts: list[Tensor | None]) -> Any:
        """Return the structure of the output with these tensors, where there are any."""
        return filled(
            [
                leaf if part is None else part.to(leaf.dtype)
                for leaf, part in zip(leaves, parts, strict=True)
            ]
        )

    if not samples:
        return Prediction(structured(means), structured(stds))
    stacked = [
        None if mean is None else torch.stack(draws)
        for mean, draws in zip(means, zip(*kept, strict=True), strict=True)
    ]
    return Prediction(structured(means), structured(stds), samples=structured(stacked))


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
