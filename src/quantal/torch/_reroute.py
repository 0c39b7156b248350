"""A mode in which torch's own functions draw QSD where they would draw dropout."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import Tensor
from torch.overrides import TorchFunctionMode

from quantal.torch._attention import multi_head_attention_forward, scaled_dot_product_attention
from quantal.torch._functional import dilute
from quantal.torch._spatial import QSD1d, QSD2d, QSD3d, map_axes_as_torch

__all__ = ["ROUTES", "Rerouting", "Route"]


class Route(NamedTuple):
    """How a function of torch that drops units draws QSD instead.

    Attributes
    ----------
    name : str
        The name under which a module keeps the alpha for it: a word can be saved with a model,
        while not every function of torch can. Functions that torch calls by one name share it.
    diluting : function
        What takes the place of the function: it has the same arguments, after alpha.
    """

    name: str
    diluting: Callable[..., Any]


class Rerouting(TorchFunctionMode):
    """Within it, functions of torch that drop units dilute them instead.

    Parameters
    ----------
    alphas : mapping
        The homogeneity for each function, by the name of its `Route`; the rate is what it is
        called with.

    Examples
    --------
    >>> with Rerouting({"dropout": 1.0}):
    ...     y = F.dropout(torch.ones(1000), 0.5)
    >>> bool(y.max() > 2)
    True
    """

    def __init__(self, alphas: Mapping[str, float]) -> None:
        super().__init__()
        self.alphas = alphas

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call what takes the place of the function or, if nothing does, the function itself."""
        route = ROUTES.get(func)
        if route is None or route.name not in self.alphas:
            return func(*args, **(kwargs or {}))
        return route.diluting(self.alphas[route.name], *args, **(kwargs or {}))


def _dropout(
    alpha: float, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return dilute(input, p, alpha, training=training, inplace=inplace)


def _bare_dropout(alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return dilute(input, p, alpha, training=train)


def _bare_dropout_(alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return dilute(input, p, alpha, training=train, inplace=True)


def _maps(
    single_sample: int | None,
    alpha: float,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """Drop whole channels; ``single_sample`` as in `map_axes_as_torch`."""
    axes = map_axes_as_torch(input.ndim, single_sample)
    return dilute(input, p, alpha, training=training, inplace=inplace, broadcast_dims=axes)


def _between_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of one of torch's recurrent functions."""

    def run(alpha: float, *args: Any) -> Any:
        from quantal.torch._recurrent import run_layers  # loads torch's compiler: only if needed

        return run_layers(alpha, function, *args)

    return run


# Every function of torch that drops units, and what takes its place.
_DILUTING: dict[Any, Any] = {
    F.dropout: _dropout,
    F.dropout1d: functools.partial(_maps, QSD1d.single_sample),
    F.dropout2d: functools.partial(_maps, QSD2d.single_sample),
    F.dropout3d: functools.partial(_maps, QSD3d.single_sample),
    torch.dropout: _bare_dropout,
    torch.dropout_: _bare_dropout_,
    F.scaled_dot_product_attention: scaled_dot_product_attention,
    F.multi_head_attention_forward: multi_head_attention_forward,
    torch.lstm: _between_layers(torch.lstm),
    torch.gru: _between_layers(torch.gru),
    torch.rnn_tanh: _between_layers(torch.rnn_tanh),
    torch.rnn_relu: _between_layers(torch.rnn_relu),
}
ROUTES = {function: Route(function.__name__, own) for function, own in _DILUTING.items()}
