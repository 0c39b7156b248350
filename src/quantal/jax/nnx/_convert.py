"""QSD in the place of dropout in an existing NNX model, and back."""

from __future__ import annotations

import math
import traceback
from pathlib import Path
from typing import Any, TypeVar

from flax import nnx
from flax.errors import TraceContextError

from quantal._arguments import flag
from quantal._selection import Alpha, Pattern, Place, Selection
from quantal._watch import StackFrame, in_package
from quantal.jax._example import Example, runner
from quantal.jax._watch import unknown_places
from quantal.jax.nnx._find_sites import find_sites, modules_of
from quantal.jax.nnx._swap import swap, unswap
from quantal.sites import Site, Sites

__all__ = ["convert", "revert", "sites"]

Model = TypeVar("Model")


def convert(
    model: Model,
    alpha: Alpha | None = None,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
    example: Example = None,
) -> Model:
    """Turn every dropout of a model into QSD with the same rate, in place.

    Layers stay the same objects, with their rates, streams and modes, and shared layers stay
    shared; only their class changes. The state of the model is the same as before, so checkpoints
    fit both ways. Functions that were compiled before are traced again. What holds the graph
    itself, such as a ``GraphDef`` or an ``nnx.cached_partial``, must be made again.

    Parameters
    ----------
    model : nnx.Module
        Any module, or any tree of modules; its ``nnx.Dropout``, the dropout of
        ``nnx.MultiHeadAttention`` on its weights and that of Linen modules in it
        (``nnx.bridge.ToNNX``) are swapped.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of paths such as ``"blocks/*/dropout"``, or functions of
        (path, module).
    strict : bool
        True: dropout that cannot be converted is an error. False: it is a warning.
    example : function or inputs, optional
        As in `sites`: proves that no dropout was missed.

    Returns
    -------
    nnx.Module
        The model itself.

    Examples
    --------
    >>> model = nnx.Sequential(nnx.Linear(2, 3, rngs=nnx.Rngs(0)), nnx.Dropout(0.5))
    >>> sites(convert(model, alpha=1.0))
    name      kind  rate  alpha  mean gain
    layers/1  QSD   0.5   1      1.333
    1 site, 1 of them QSD
    """
    selection = Selection(alpha, include, exclude, flag("strict", strict))
    for place, own_alpha in selection.choose(_find_all_sites(model, example)):
        swap(place.module, own_alpha)
    return model


def revert(model: Model) -> Model:
    """Undo `convert`, in place: the same objects are dropout again.

    Weights, rates, streams and modes stay as they are now. QSD layers that `convert` did not make
    are left alone.

    Examples
    --------
    >>> model = nnx.Sequential(nnx.Dropout(0.5))
    >>> type(revert(convert(model, alpha=1.0)).layers[0]) is nnx.Dropout
    True
    """
    for module in modules_of(model).values():
        unswap(module)
    return model


def sites(model: Any, *, example: Example = None) -> Sites:
    """List every place of a model where units are dropped, and why some cannot be converted.

    Parameters
    ----------
    model : nnx.Module
        Any module, or any tree of modules.
    example : function or inputs, optional
        Proves that no place is missing: a training pass is traced, and every mask that it draws
        is seen, wherever it comes from. Inputs are a tuple of positional arguments, a dict of
        keyword arguments or a single array, and the model is called with them; a function, such
        as ``lambda model: loss(model, batch)``, is given the model. The model is a copy in
        training mode: its own streams, modes and statistics stay as they are.

    Examples
    --------
    >>> from quantal.jax.nnx import QSD
    >>> sites(nnx.Sequential(nnx.Dropout(0.5), QSD(0.5, alpha=1.0)))
    name      kind     rate  alpha  mean gain
    layers/0  Dropout  0.5   -      1
    layers/1  QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """
    return Sites(place.site for place in _find_all_sites(model, example))


def _find_all_sites(model: Any, example: Example) -> list[Place]:
    """Return the places that are found in the model and, with an example, in a run."""
    known = list(find_sites(model))
    if example is None:
        return known
    run, arrays = runner(example, lambda model, *args, **kwargs: model(*args, **kwargs))
    graphdef, state = nnx.split(model)

    def training_pass(state: Any, arrays: Any) -> Any:
        copy = nnx.merge(graphdef, state)
        for place in find_sites(copy):
            if place.site.alpha is None and not place.site.unreached:
                swap(place.module, 1.0)
        for module in modules_of(copy).values():  # of which the model may be a tree
            module.train()
        return run(copy, arrays)

    try:
        return known + unknown_places(training_pass, (state, arrays), known)
    except TraceContextError as error:  # the pass cannot be traced any further
        return [*known, Place(_stream_outside(error), None)]


def _stream_outside(error: TraceContextError) -> Site:
    """Return the place where a pass changes something outside of the model, such as a stream."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [StackFrame(each.filename, each.lineno or 0, each.name) for each in reversed(stack)]
    frame = next(frame for frame in frames if not in_package(frame, "jax", "flax", "quantal"))
    where = f"{Path(frame.file).name}:{frame.line}"
    reason = f"a layer or stream that is no part of the model runs in {frame.function}, {where}"
    return Site(where, "Rngs", math.nan, unreached=reason)
