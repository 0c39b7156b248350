"""Proof by running: dropout that a training pass has, whatever the source of the model looks like.

In that pass all known dropout is QSD, and so is what turns up in code that is not torch's own. A
mode that sees every operation finds whatever else draws a mask.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from quantal._errors import wrong_value
from quantal._selection import Place
from quantal._watch import NativeMask, in_package, of_its_own
from quantal.sites import Site
from quantal.torch._change import as_it_was, change_place, code_of_others
from quantal.torch._example import build, run_unnoticed
from quantal.torch._find_sites import site_of_mask
from quantal.torch._native_masks import MaskWatch
from quantal.torch._reroute import ROUTES
from quantal.torch._swap import Change, reroute_all

__all__ = ["has_rate", "unknown_places"]

_ALPHA = math.inf  # in the pass: the law is dropout's own, and its table is made at once
_BY_NAME = {route.name: route for route in reversed(ROUTES.values())}


def unknown_places(model: nn.Module, example: Any, known: Iterable[Place]) -> list[Place]:
    """Return the places where a training pass drops units, as far as they are not known.

    Among them are places that are known to be out of reach, but without their rate.

    Parameters
    ----------
    model : nn.Module
        The model. Afterwards it is as it was.
    example
        As in `convert`.
    known : iterable of Place
        The places that are found without running the model.
    """
    known = list(known)
    build(model, example)
    names = {id(module): name for name, module in model.named_modules()}
    with as_it_was(model):
        for place in known:
            if place.site.alpha is None and not place.site.unreached:
                change_place(place, _ALPHA, model)
        for module in code_of_others(model):
            reroute_all(module, _ALPHA)
        before = {id(module): set(_seen(module)) for module in model.modules()}
        watch = _Watch(names)
        run_unnoticed(model, example, watch.run)
        found = [
            Place(_site(names[id(module)], written, rate), module, Change(route, None, rate))
            for module in model.modules()
            for name, (written, rate) in _seen(module).items()
            if name not in before[id(module)] and (route := _BY_NAME[name])
        ]
    # A module that ran in training and drew nothing has shown all that it does.
    ran = watch.diluted or watch.found or any(id(place.module) in watch.ran for place in known)
    if not ran and any(place.site.rate != 0 for place in known):
        expected = "a training pass, in which dropout draws"
        raise wrong_value("example", expected, "a pass that draws nothing")
    return found + list(_out_of_reach(watch, names, known))


class _Watch(MaskWatch):
    """Watches a pass of a model: which modules run, and which of them draw."""

    def __init__(self, names: dict[int, str]) -> None:
        super().__init__()
        self._names = names
        self.ran = set[int]()  # modules that were called in training

    def run(self, program: Callable[[], Any]) -> None:
        """Run a program in this mode."""

        def note(module: nn.Module, args: Any) -> None:
            if module.training:
                self.ran.add(id(module))

        hook = register_module_forward_pre_hook(note)
        try:
            super().run(program)
        finally:
            hook.remove()

    def owner(self) -> nn.Module | None:
        """Return the innermost module that runs."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            first = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            if id(first) in self._names:
                # A method, not a function of the model, such as a step of its training.
                method = getattr(type(first), code.co_name, None)
                if getattr(method, "__code__", None) is code:
                    return first
            frame = frame.f_back
        return None


def has_rate(place: Place) -> bool:
    """Return whether the rate of a place is known."""
    return not math.isnan(place.site.rate)


def _seen(module: nn.Module) -> dict[str, tuple[str, float]]:
    """Return the calls that were found in a module by running it."""
    return vars(module).get("_qsd_found", {})


def _site(module_name: str, kind: str, rate: float) -> Site:
    return Site(f"{module_name}.forward".lstrip("."), kind, rate)


def _out_of_reach(watch: _Watch, names: dict[int, str], known: Iterable[Place]) -> Iterator[Place]:
    """Walk through what has drawn masks of its own, unless it is known, and with its rate."""
    met = {id(place.module) for place in known if place.site.unreached and has_rate(place)}
    for mask, owner in zip(watch.found, watch.owners, strict=True):
        where, reason = _words(mask)
        key: Any = where if owner is None else id(owner)
        if key in met:
            continue
        met.add(key)
        if owner is None:
            yield Place(Site(where, "random mask", mask.rate, unreached=reason), None)
            continue
        kind, name = type(owner).__name__, names[id(owner)]
        yield Place(site_of_mask(name, kind, mask.rate, reason), owner)


def _words(mask: NativeMask) -> tuple[str, str]:
    """Return where a mask was drawn, and why it is out of reach."""
    for frame in mask.frames:
        if not in_package(frame, "torch", "quantal"):
            return f"{Path(frame.file).name}:{frame.line}", of_its_own(frame)
    return "(unknown)", of_its_own(None)
