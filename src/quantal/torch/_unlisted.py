"""Dropout that turns up while a converted model runs, and that `convert` has not seen."""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path
from typing import Any

from torch import nn

from quantal.sites import UnreachedWarning
from quantal.torch._private_api import (
    attention_implementation,
    configuration,
    count_modules,
    is_dropout,
)
from quantal.torch._reroute import ANY, Rerouting, Route

__all__ = ["Inventory", "alpha_of_unlisted", "notice_changes", "notice_mask"]


def alpha_of_unlisted(mode: Rerouting, route: Route, rate: float) -> float | None:
    """Return the alpha for a function that a module was not known to call; None for dropout.

    The function is remembered as one that the module calls.
    """
    module: Any = mode.module
    alpha = mode.alphas.get(ANY)
    if alpha is None:  # places were left out, and this may be one of them
        return None
    if math.isnan(alpha):
        _warn(
            f"{type(module).__name__}: {route.written} draws dropout, at a rate of {rate:.4g}. "
            "It was not known when the model was converted, and alpha depends on the rate: "
            "convert(model, alpha, example=…) finds it in time"
        )
        return None
    module._qsd_alphas[route.name] = alpha
    module._qsd_found[route.name] = (route.written, float(rate))
    return alpha


def notice_mask(mode: Rerouting, written: str, drawn: Any) -> None:
    """Warn, once for each line, of a mask that is not QSD where `convert` has left nothing out."""
    inventory: Inventory = vars(mode.begun_by)["_qsd_inventory"]
    mask = drawn[-1] if isinstance(drawn, tuple) else drawn
    # One number for each sample, as in stochastic depth, is no mask of units.
    if not inventory.complete or mask.ndim == 0 or mask.numel() == mask.shape[0]:
        return
    file, line, function = _caller()
    if (file, line) not in inventory.lines:
        inventory.lines.add((file, line))
        _warn(
            f"{type(mode.module).__name__}: {written} draws a mask that is not QSD, in {function}, "
            f"{Path(file).name}:{line}. convert(model, alpha, example=…) names all of them"
        )


def _caller() -> tuple[str, int, str]:
    """Return file, line and function of the code that has called torch."""
    frame: Any = sys._getframe(2)
    # In threads of autograd, a checkpoint may run modules of torch with no user's code around them.
    while frame.f_back and _package(frame) in ("torch", "quantal"):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname


def _package(frame: Any) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


class Inventory:
    """What a model was like when it was converted, as far as it decides what drops units there.

    Attributes
    ----------
    complete : bool
        Whether all that is known to drop units in the model has become QSD.
    lines : set of tuple
        File and line of what has turned out to draw masks of its own.
    """

    def __init__(self, model: nn.Module) -> None:
        self.complete = False
        self.lines = set[tuple[str, int]]()
        self._look_at(model)

    def _look_at(self, model: nn.Module) -> None:
        self._modules = count_modules(model)
        configs = {id(config): config for config in map(configuration, model.modules()) if config}
        self._attention = [(c, attention_implementation(c)) for c in configs.values()]

    def changes(self, model: nn.Module) -> list[str]:
        """Return in words what has changed since the last call, or since the conversion."""
        found = []
        if count_modules(model) != self._modules:
            layers = [f"{n} ({type(m).__name__})" for n, m in model.named_modules() if _native(m)]
            if layers:
                more = ", …" if len(layers) > 3 else ""
                found.append(f"there is dropout that is not QSD: {', '.join(layers[:3])}{more}")
        for config, before in self._attention:
            now = attention_implementation(config)
            if now != before:
                found.append(f"its attention is {now!r}, and was {before!r}")
        if found:
            self._look_at(model)
        return found


def notice_changes(model: Any) -> None:
    """Warn, once for each change, if a model is no longer what `convert` has seen."""
    if changes := model._qsd_inventory.changes(model):
        _warn(
            f"{type(model).__name__} has changed since it was converted: {'; '.join(changes)}. "
            "Call revert(model), and convert it again"
        )


def _native(module: nn.Module) -> bool:
    return is_dropout(module) and not hasattr(module, "_dilution")


def _warn(text: str) -> None:
    warnings.warn(text, UnreachedWarning, stacklevel=2)
