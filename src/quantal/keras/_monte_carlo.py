"""Masks in evaluation, for Monte-Carlo predictions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from quantal._errors import wrong_type
from quantal._prediction import Prediction, count_of_draws, nothing_to_draw
from quantal.keras._layers import QSD
from quantal.keras._reroute import DilutedCell, DilutedHeads, gate_masks, mixin_of, rates
from quantal.keras._source_scan import NATIVE
from quantal.keras._swap import alphas
from quantal.keras._walk import check_flag, check_model, forget_traces, walk

__all__ = ["masks_on", "predict_mc"]


@contextmanager
def masks_on(model: Any, *, native: bool = False) -> Iterator[Any]:
    """Draw coefficients also where the model is called for inference.

    Other layers, such as BatchNormalization, do what they do in inference. ``predict`` and
    ``evaluate`` are compiled anew inside, and again afterwards; functions that you have compiled
    yourself keep what they were traced with.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        A model with QSD layers, or one that `convert` has changed.
    native : bool
        True: Keras's own dropout draws too.

    Raises
    ------
    ValueError
        If there is nothing in the model that would draw.

    Examples
    --------
    >>> import keras
    >>> from quantal.keras import QSD
    >>> layer, x = QSD(0.5, alpha=1.0), keras.ops.ones((8, 8))
    >>> with masks_on(layer):
    ...     bool(keras.ops.all(layer(x) == x))
    False
    >>> layer(x) is x
    True
    """
    check_model(model)
    check_flag("native", native)
    changed: list[tuple[Any, str]] = []

    def change(layer: Any, method: str, into: Callable[..., Any]) -> None:
        if method not in vars(layer):
            vars(layer)[method] = into
            changed.append((layer, method))

    drawing = [node for node in walk(model) if _draws(node.layer, native)]
    if not drawing:
        raise nothing_to_draw(native)
    for node in drawing:
        change(node.layer, "call", _in_training(node.layer))
        for part in walk(node.layer):
            for option in _silent(part.layer, native):
                change(part.layer, f"get_{option}_mask", _ones(part.layer))
    forget_traces(model)
    try:
        yield model
    finally:
        for layer, method in changed:
            del vars(layer)[method]
        forget_traces(model)


def predict_mc(
    model: keras.Model,
    x: Any,
    n: int,
    *,
    native: bool = False,
    output: Callable[[Any], Any] | None = None,
    samples: bool = False,
    **arguments: Any,
) -> Prediction:
    """Return mean and standard deviation of n predictions with `masks_on`.

    Parameters
    ----------
    model : keras.Model
        A model with QSD.
    x
        What ``model.predict`` takes, as often as it is asked to: no generator that ends.
    n : int
        How many predictions, at least 2.
    native : bool
        As in `masks_on`.
    output : function, optional
        Maps what ``model.predict`` returns before it is averaged, such as logits to probabilities.
    samples : bool
        True: keep all predictions, as ``samples`` of the result.
    **arguments
        For ``model.predict``, such as ``batch_size``.

    Returns
    -------
    Prediction
        ``mean`` and ``std``, NumPy arrays in the structure of the output. The standard deviation
        is that of a sample: divided by n − 1.

    Examples
    --------
    >>> import keras, numpy as np
    >>> from quantal.keras import QSD
    >>> model = keras.Sequential([keras.Input((4,)), QSD(0.5, alpha=1.0, seed=1)])
    >>> mean, std = predict_mc(model, np.ones((2, 4)), 100)
    >>> mean.shape, std.shape
    ((2, 4), (2, 4))
    """
    check_model(model, keras.Model)
    check_flag("samples", samples)
    if output is not None and not callable(output):
        raise wrong_type("output", "a function of what the model predicts, or None", output)
    n = count_of_draws(n)
    arguments = {"verbose": 0, **arguments}
    tree = keras.tree.map_structure
    kept = []
    with masks_on(model, native=native):
        for count in range(1, n + 1):  # Welford's recurrence
            y = model.predict(x, **arguments)
            y = tree(keras.ops.convert_to_numpy, y if output is None else output(y))
            if samples:
                kept.append(y)
            if count == 1:
                first = y
                mean = tree(lambda y: np.asarray(y, np.float64), y)
                total = tree(np.zeros_like, mean)
                continue
            new = tree(lambda m, y, k=count: m + (y - m) / k, mean, y)
            total = tree(lambda t, y, m, new: t + (y - m) * (y - new), total, y, mean, new)
            mean = new
    std = tree(lambda t: np.sqrt(t / (n - 1)), total)
    mean, std = (tree(lambda y, z: z.astype(y.dtype), first, z) for z in (mean, std))
    return Prediction(mean, std, tree(lambda *ys: np.stack(ys), *kept) if samples else None)


def _draws(layer: Any, native: bool) -> bool:
    """Whether a layer's masks are wanted; of recurrent layers, whether those of a cell are."""
    if isinstance(layer, keras.layers.RNN):
        return any(_draws(node.layer, native) for node in walk(layer) if node.layer is not layer)
    if mixin_of(layer) is DilutedHeads:  # it has a layer for that
        return False
    if isinstance(layer, QSD) or alphas(layer):
        return True
    return native and (isinstance(layer, NATIVE) or bool(rates(layer)))


def _silent(layer: Any, native: bool) -> list[str]:
    """Return the options of a cell that are not wanted, although its masks are on."""
    if native or mixin_of(layer) is not DilutedCell:
        return []
    return [option for option in rates(layer) if option not in alphas(layer)]


def _in_training(layer: Any) -> Callable[..., Any]:
    call, signature = layer.call, inspect.signature(layer.call)

    def in_training(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = True
        return call(*bound.args, **bound.kwargs)

    return in_training


def _ones(cell: Any) -> Callable[[Any], Any]:
    return lambda step_input: gate_masks(cell, step_input, lambda ones: ones)
