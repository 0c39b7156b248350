"""A mode in which torch's own functions draw QSD where they would draw dropout."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from quantal._granularity import Axes
from quantal.dilution import Dilution
from quantal.torch._attention import multi_head_attention_forward, scaled_dot_product_attention
from quantal.torch._functional import dilute, dilute_by
from quantal.torch._private_api import is_checkpoint, saving_is_hooked
from quantal.torch._spatial import QSD1d, QSD2d, QSD3d, map_axes_as_torch

__all__ = ["ANY", "NATIVE_MASKS", "OTHER_LAWS", "ROUTES", "Rerouting", "Route"]

ANY = "*"
"""The name under which a module keeps the alpha for functions that it was not known to call."""


class Route(NamedTuple):
    """How a function of torch that drops units draws QSD instead.

    Attributes
    ----------
    name : str
        The name under which a module keeps the alpha for it: a word can be saved with a model,
        while not every function of torch can. Functions that torch calls by one name share it.
    written : str
        The function as users write it.
    diluting : function
        What takes the place of the function: it has the same arguments, after alpha.
    rate : function
        From the same arguments to the rate, 0 where nothing is drawn.
    """

    name: str
    written: str
    diluting: Callable[..., Any]
    rate: Callable[..., float]


Unlisted = Callable[["Rerouting", Route, float], float | None]
Unreached = Callable[["Rerouting", str, Any], None]

OTHER_LAWS: dict[Any, str] = {
    getattr(library, name): f"{short}.{name}"
    for library, short in ((F, "F"), (torch, "torch"))
    for name in ("alpha_dropout", "feature_alpha_dropout")
} | {
    torch.alpha_dropout_: "torch.alpha_dropout_",
    torch.feature_alpha_dropout_: "torch.feature_alpha_dropout_",
}
"""Functions of torch that drop units by a law other than dropout's, as users write them."""

_NATIVE = torch.ops.aten.native_dropout
NATIVE_MASKS: dict[Any, str] = dict.fromkeys(
    (torch.native_dropout, _NATIVE, _NATIVE.default), "torch.native_dropout"
)
"""Functions of torch that return the mask of dropout, too, for which the caller has some use."""

_BERNOULLI: dict[Any, str] = dict.fromkeys(
    (torch.bernoulli, Tensor.bernoulli, Tensor.bernoulli_), "torch.bernoulli"
)


class Rerouting(TorchFunctionMode):
    """Within it, functions of torch that drop units dilute them instead.

    Parameters
    ----------
    alphas : mapping
        The homogeneity for each function, by the name of its `Route`; the rate is what it is
        called with. Under `ANY`, that for all others.
    module : nn.Module, optional
        The module whose code runs. While one inside of it runs, ``module`` is that one, and
        ``begun_by`` stays the first.
    unlisted : function, optional
        Called where units are about to be dropped by a function that is not in ``alphas``, with
        this mode, the route and the rate; returns alpha, or None for dropout. Not in compiled code.
    unreached : function, optional
        Called where a mask is drawn that does not become QSD, with this mode, the function as users
        write it, and what it has returned. Not in compiled code.

    Examples
    --------
    >>> with Rerouting({"dropout": 1.0}):
    ...     y = F.dropout(torch.ones(1000), 0.5)
    >>> bool(y.max() > 2)
    True
    """

    def __init__(
        self,
        alphas: Mapping[str, float],
        module: nn.Module | None = None,
        unlisted: Unlisted | None = None,
        unreached: Unreached | None = None,
    ) -> None:
        super().__init__()
        self.alphas, self.module, self.begun_by = alphas, module, module
        self._unlisted, self._unreached = unlisted, unreached

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call what takes the place of the function or, if nothing does, the function itself."""
        if func not in _LOOKED_AT:
            return func(*args, **kwargs) if kwargs else func(*args)
        route, kwargs = ROUTES.get(func), kwargs or {}
        if route is None:
            drawn = func(*args, **kwargs)
            notice = None if torch.compiler.is_compiling() else self._unreached
            if notice and (func in _BERNOULLI or _other_rate(*args, **kwargs) != 0):
                notice(self, _LOOKED_AT[func], drawn)
            return drawn
        alpha = self.alphas.get(route.name)
        if alpha is None and (ANY in self.alphas or self._unlisted is not None):
            alpha = self._alpha_of_unlisted(route, route.rate(*args, **kwargs))
        if alpha is None:
            return func(*args, **kwargs)
        if saving_is_hooked():
            self._refuse_checkpoint(route, args, kwargs)
        return route.diluting(alpha, *args, **kwargs)

    def _refuse_checkpoint(self, route: Route, args: Any, kwargs: Any) -> None:
        """Refuse what a checkpoint would run again outside of this mode: with a wrong gradient.

        Methods of the module, and modules that are called, enter the mode again.
        """
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_globals.get("__name__") != "quantal.torch._running":
            if is_checkpoint(frame):
                if route.rate(*args, **kwargs) == 0:
                    return
                raise RuntimeError(
                    f"{route.written} in a function that torch.utils.checkpoint runs twice: "
                    "expected a method of the module that calls it, or a layer, where QSD draws "
                    "the same again. As it is, the gradient would be wrong"
                )
            frame = frame.f_back

    def _alpha_of_unlisted(self, route: Route, rate: float) -> float | None:
        if rate == 0:
            return None
        if self._unlisted is not None and not torch.compiler.is_compiling():
            return self._unlisted(self, route, rate)
        alpha = self.alphas.get(ANY, math.nan)
        return None if math.isnan(alpha) else alpha


_law = functools.lru_cache(maxsize=64)(Dilution)


def _dilute(
    alpha: float, input: Tensor, p: float, training: bool, inplace: bool, axes: Axes = ()
) -> Tensor:
    """Dilute in the place of a function of torch."""
    usual = type(input) is Tensor and type(p) is float and type(training) is type(inplace) is bool
    if usual and not torch.compiler.is_compiling():  # what was checked once is not checked again
        return dilute_by(_law(p, alpha), input, None, training, inplace, axes)
    return dilute(input, p, alpha, training=training, inplace=inplace, broadcast_dims=axes)


def _dropout(
    alpha: float, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    return _dilute(alpha, input, p, training, inplace)


def _dropout_rate(input: Tensor, p: float = 0.5, training: bool = True, *_: Any, **__: Any) -> Any:
    return p if training else 0.0


def _other_rate(
    input: Tensor,
    p: float = 0.5,
    training: bool | None = False,
    *_: Any,
    train: bool = False,
    **__: Any,
) -> Any:
    return p if training or train else 0.0


def _bare_dropout(alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return _dilute(alpha, input, p, train, False)


def _bare_dropout_(alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return _dilute(alpha, input, p, train, True)


def _bare_rate(input: Tensor, p: float, train: bool) -> Any:
    return p if train else 0.0


def _maps(
    batch: int | None,
    alpha: float,
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
) -> Tensor:
    """Drop whole channels; ``batch`` as in `map_axes_as_torch`."""
    axes = map_axes_as_torch(input.ndim, batch)
    return _dilute(alpha, input, p, training, inplace, axes)


def _bare_maps(inplace: bool, alpha: float, input: Tensor, p: float, train: bool) -> Tensor:
    return _maps(None, alpha, input, p, train, inplace)


def _scaled_attention_rate(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, *_: Any,
    **__: Any,
) -> float:  # fmt: skip
    return dropout_p


def _multi_head_rate(*args: Any, **kwargs: Any) -> float:
    names = multi_head_attention_forward.__code__.co_varnames[1:]
    given = dict(zip(names, args, strict=False)) | kwargs
    return float(given["dropout_p"]) if given.get("training", True) else 0.0


def _between_layers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what takes the place of one of torch's recurrent functions."""

    def run(alpha: float, *args: Any) -> Any:
        from quantal.torch._recurrent import run_layers  # loads torch's compiler: only if needed

        return run_layers(alpha, function, *args)

    return run


def _recurrent_rate(*args: Any) -> float:
    # The arguments of `run_layers`.
    packed = not isinstance(args[3], bool)
    layers, rate, train = args[4 + packed : 7 + packed]
    return float(rate) if train and layers > 1 else 0.0


def _routes() -> dict[Any, Route]:
    """Return every function of torch that drops units, and what takes its place."""
    maps = functools.partial
    diluting: dict[str, tuple[Any, Any, Any]] = {
        "F.dropout": (F.dropout, _dropout, _dropout_rate),
        "F.dropout1d": (F.dropout1d, maps(_maps, QSD1d.batch), _dropout_rate),
        "F.dropout2d": (F.dropout2d, maps(_maps, QSD2d.batch), _dropout_rate),
        "F.dropout3d": (F.dropout3d, maps(_maps, QSD3d.batch), _dropout_rate),
        "torch.dropout": (torch.dropout, _bare_dropout, _bare_rate),
        "torch.dropout_": (torch.dropout_, _bare_dropout_, _bare_rate),
        "torch.feature_dropout": (torch.feature_dropout, maps(_bare_maps, False), _bare_rate),
        "torch.feature_dropout_": (torch.feature_dropout_, maps(_bare_maps, True), _bare_rate),
        "F.scaled_dot_product_attention": (
            F.scaled_dot_product_attention, scaled_dot_product_attention, _scaled_attention_rate,
        ),
        "F.multi_head_attention_forward": (
            F.multi_head_attention_forward, multi_head_attention_forward, _multi_head_rate,
        ),
    }  # fmt: skip
    for function in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu):
        written = f"torch.{function.__name__}"
        diluting[written] = function, _between_layers(function), _recurrent_rate
    routes = {
        function: Route(function.__name__, written, own, rate)
        for written, (function, own, rate) in diluting.items()
    }
    # The operators that these functions call in the end.
    for name in ("dropout", "dropout_", "feature_dropout", "feature_dropout_"):
        operator = getattr(torch.ops.aten, name)
        routes |= dict.fromkeys((operator, operator.default), routes[getattr(torch, name)])
    operator = torch.ops.aten.scaled_dot_product_attention
    route = routes[F.scaled_dot_product_attention]
    return routes | dict.fromkeys((operator, operator.default), route)


ROUTES = _routes()
_LOOKED_AT: dict[Any, Any] = {**ROUTES, **OTHER_LAWS, **NATIVE_MASKS, **_BERNOULLI}
