"""Proof by running: every place where a training pass draws a mask without QSD.

The pass is traced, not computed, and the program that JAX makes of it is searched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from quantal._errors import wrong_value
from quantal._selection import Place
from quantal._source_scan import SourceCall
from quantal.jax._native_masks import MaskDraw, each_line_once, every_draw, native_masks

__all__ = ["native_masks", "unknown_places"]


def unknown_places(
    run: Callable[..., Any], args: tuple[Any, ...], known: Iterable[Place]
) -> list[Place]:
    """Return a place for each mask that a training pass draws without QSD, and that is not known.

    Parameters
    ----------
    run, args
        The pass, in which all dropout that can be swapped is QSD.
    known : iterable of Place
        The places that are found without running the model.
    """
    known = list(known)
    unreached = [place for place in known if place.site.unreached]
    draws = every_draw(run, *args)
    if not draws and any(p.site.rate not in (0, 1) and not p.site.unreached for p in known):
        expected = "a training pass, in which dropout draws"
        raise wrong_value("example", expected, "a pass that draws nothing")
    return [
        Place(draw.site, None)
        for draw in each_line_once(draws)
        if not any(_is_of(draw, place) for place in unreached)
    ]


def _is_of(draw: MaskDraw, place: Place) -> bool:
    """Return whether a mask was drawn at a place that is known to be out of reach."""
    functions: list[Any]
    if isinstance(place.how, SourceCall):
        functions = [place.how.function] if draw.kind.startswith(place.site.kind) else []
    else:
        functions = [type(place.module).__call__, getattr(place.module, "attention_fn", None)]
    codes = [getattr(inspect.unwrap(f), "__code__", None) for f in functions if f is not None]
    names = {
        (code.co_filename, name)
        for code in codes
        if code is not None
        for name in (code.co_qualname, code.co_name)  # which of them depends on JAX's version
    }
    return any((frame.file, frame.function) in names for frame in draw.frames)
