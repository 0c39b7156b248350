"""Proof by running: dropout that a training pass shows, and that nothing else finds."""

from __future__ import annotations

import gc
import inspect
import itertools
import math
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import keras
import numpy as np

from quantal._errors import wrong_value
from quantal._process_lock import ProcessLock
from quantal._selection import Place
from quantal._watch import NativeMask, StackFrame, in_package
from quantal.keras._backend import backend
from quantal.keras._source_scan import InCode
from quantal.keras._swap import put_back
from quantal.keras._walk import forget_traces, walk
from quantal.sites import Site

__all__ = ["build", "unknown_places"]

_LIBRARIES = ("keras", "tensorflow", "torch", "jax", "quantal")
_LAYERS = Path(inspect.getfile(keras.layers.Dropout)).parents[1]
# Keras's own layers that drop units are in these folders; others draw for other purposes.
_DROPPING = tuple(str(_LAYERS / name) for name in ("regularization", "attention", "rnn", "core"))
_FUNCTION = re.compile(r"(^|[._])dropout\w*$")

# One thread at a time, since the function that counts draws serves all layers.
_WATCHING = ProcessLock(threading.RLock)


def unknown_places(model: Any, example: Any, known: Iterable[Place]) -> list[Place]:
    """Return a place for each mask that a training pass draws without QSD, and that is not known.

    In that pass, all dropout that can be swapped is QSD. Afterwards the model, its variables and
    the random state are as they were.

    Parameters
    ----------
    model : keras.layers.Layer
        The model, which is built.
    example
        An input, a tuple of arguments, or a function that runs the model as it is trained.
    known : iterable of Place
        The places that are found without running the model.
    """
    known = list(known)
    drawn: list[Any] = []
    with _WATCHING(), put_back(model), _counting(drawn):
        for place in known:
            if place.site.alpha is None and not place.site.unreached:
                place.how(math.inf)  # whose table is made at once
        if callable(example):
            with _unchanged(model):
                takes_model = len(inspect.signature(example).parameters) > 0
                found = backend.masks_of_function(partial(example, *[model] * takes_model))
        else:
            with keras.StatelessScope():
                found = backend.masks_of_call(partial(model, training=True), _arguments(example))
    masks = [mask for mask in found if not _draws_otherwise(mask)]
    reached = (place.site for place in known if not place.site.unreached)  # the others are named
    if not masks and not drawn and any(site.rate > 0 for site in reached):
        expected = "a training pass, in which dropout draws"
        raise wrong_value("example", expected, "a pass that draws nothing")
    unreached = [place for place in known if place.site.unreached]
    unknown = [_site(mask) for mask in masks if not any(_is_of(mask, p) for p in unreached)]
    return [Place(site, None) for site in dict.fromkeys(unknown)]


def build(model: Any, example: Any) -> None:
    """Build a model that is not built yet by an example."""
    if not callable(example) and not all(node.layer.built for node in walk(model)):
        model(*_arguments(example), training=False)


def _arguments(example: Any) -> tuple[Any, ...]:
    return example if isinstance(example, tuple) else (example,)


@contextmanager
def _counting(drawn: list[Any]) -> Iterator[None]:
    """Count the draws of QSD."""
    dilute = backend.dilute

    def counted(*args: Any, **kwargs: Any) -> Any:
        drawn.append(1)
        return dilute(*args, **kwargs)

    backend.dilute = counted
    try:
        yield
    finally:
        backend.dilute = dilute


@contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """Restore the variables of a model and its optimizer, and all seeds, at the end of a block."""
    forget_traces(model)
    owners = [node.layer for node in walk(model)]
    owners += [layer.optimizer for layer in owners if getattr(layer, "optimizer", None)]
    variables = {id(v): v for owner in owners for v in owner.variables}
    for each in gc.get_objects():  # seed generators may be anywhere
        if issubclass(type(each), keras.random.SeedGenerator):
            variables[id(each.state)] = each.state
    kept = [(v, np.array(keras.ops.convert_to_numpy(v))) for v in variables.values()]
    try:
        yield
    finally:
        for variable, value in kept:
            variable.assign(value)
        forget_traces(model)


def _draws_otherwise(mask: NativeMask) -> bool:
    """Return whether a layer of Keras's own has drawn that drops nothing, such as RandomFlip."""
    own = itertools.takewhile(lambda frame: in_package(frame, *_LIBRARIES), mask.frames)
    # Not the base class, through which every layer is called.
    inside = [frame.file for frame in own if Path(frame.file).parent.parent == _LAYERS]
    return bool(inside) and not inside[0].startswith(_DROPPING)


def _is_of(mask: NativeMask, place: Place) -> bool:
    """Return whether a mask was drawn at a place that is known to be out of reach."""
    function, lines = type(place.module).call, None
    if isinstance(place.how, InCode):
        function, lines = place.how.function, place.how.lines
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        return False
    inner = f"{code.co_qualname}.<locals>."  # functions within it are read with it
    return any(
        frame.file == code.co_filename
        and f"{frame.function}.<locals>.".startswith(inner)
        and (lines is None or frame.line in lines)
        for frame in mask.frames
    )


def _site(mask: NativeMask) -> Site:
    inside: list[StackFrame] = []
    for frame in mask.frames:
        if frame.file == __file__:  # where the pass was started
            break
        # Code that was a string has no file; the line that ran it comes next.
        if not (in_package(frame, *_LIBRARIES) or frame.file.startswith("<")):
            where = f"{Path(frame.file).name}:{frame.line}"
            reason = f"it draws a mask of its own in {frame.function}, {where}"
            return Site(where, _kind(inside), mask.rate, unreached=reason)
        inside.append(frame)
    return Site("(unknown)", _kind(inside), mask.rate, unreached="it draws a mask of its own")


def _kind(inside: list[StackFrame]) -> str:
    """Return what draws: a layer of Keras, a function, or random numbers as such."""
    for frame in reversed(inside):
        if frame.file.startswith(_DROPPING) and frame.function.endswith(".call"):
            return frame.function.partition(".")[0]
    named = [frame.function for frame in inside if _FUNCTION.search(frame.function)]
    return named[-1].rpartition(".")[2] if named else "random mask"
