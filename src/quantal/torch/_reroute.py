"""A mode in which torch's own functions draw QSD where they would draw dropout."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import Tensor
from torch.overrides import TorchFunctionMode

from quantal.torch._attention import multi_head_attention_forward, scaled_dot_product_attention
from quantal.torch._functional import dilute

__all__ = ["REROUTED", "Rerouting"]


class Rerouting(TorchFunctionMode):
    """Within it, functions of torch that drop units dilute them instead.

    Parameters
    ----------
    alphas : dict
        The homogeneity for each function, by its name; the rate is what it is called with.

    Examples
    --------
    >>> with Rerouting({"dropout": 1.0}):
    ...     y = F.dropout(torch.ones(1000), 0.5)
    >>> bool(y.max() > 2)
    True
    """

    def __init__(self, alphas: dict[str, float]) -> None:
        super().__init__()
        self.alphas = alphas

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call what takes the place of the function, or else the function itself."""
        if func in REROUTED and func.__name__ in self.alphas:
            return REROUTED[func](self.alphas[func.__name__], *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _dropout(
    alpha: float, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return dilute(input, p, alpha, training=training, inplace=inplace)


def _bare_dropout(alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return dilute(input, p, alpha, training=train)


def _bare_dropout_(alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return dilute(input, p, alpha, training=train, inplace=True)


def _maps(
    unbatched: int | None,
    alpha: float,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """Drop whole channels; ``unbatched`` is the rank that torch takes for a single sample."""
    maps = tuple(range(1 if input.ndim == unbatched else 2, input.ndim))
    return dilute(input, p, alpha, training=training, inplace=inplace, broadcast_dims=maps)


def _stack(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(alpha: float, *args: Any) -> Any:
        from quantal.torch._recurrent import stack  # which loads torch's compiler: only if needed

        return stack(alpha, function, *args)

    return run


# What each function becomes: the same arguments, after alpha.
REROUTED: dict[Any, Callable[..., Any]] = {
    F.dropout: _dropout,
    F.dropout1d: functools.partial(_maps, 2),
    F.dropout2d: functools.partial(_maps, None),  # three axes are (N, C, L) to torch
    F.dropout3d: functools.partial(_maps, 4),
    torch.dropout: _bare_dropout,
    torch.dropout_: _bare_dropout_,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.multi_head_attention_forward: multi_head_attention_forward,
    torch.lstm: _stack(torch.lstm),
    torch.gru: _stack(torch.gru),
    torch.rnn_tanh: _stack(torch.rnn_tanh),
    torch.rnn_relu: _stack(torch.rnn_relu),
}
