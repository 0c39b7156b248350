"""Masks in evaluation, for Monte-Carlo predictions."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import keras
import numpy as np

from quantal._arguments import flag
from quantal._prediction import Prediction, count_of_draws, nothing_to_draw
from quantal._process_lock import ProcessLock
from quantal._switches import Switches
from quantal.keras._layers import QSD
from quantal.keras._reroute import DilutedCell, DilutedHeads, gate_masks, mixin_of, rates
from quantal.keras._source_scan import NATIVE
from quantal.keras._swap import alphas
from quantal.keras._walk import check_model, forget_traces, walk

__all__ = ["masks_on", "predict_mc"]

Methods = dict[str, Callable[..., Any]]


@contextmanager
def masks_on(model: Any, *, native: bool = False) -> Iterator[Any]:
    """Let QSD draw although the model is called for inference.

    Other layers, such as BatchNormalization, behave as in inference. ``predict`` and
    ``evaluate`` are compiled again inside and afterwards; functions that you have compiled
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

    Notes
    -----
    A mode belongs to a model, not to a thread: while one thread is in this context, the others
    see the masks too. Several may be in it at once, with the same ``native``.

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
    flag("native", native)
    drawing = [node.layer for node in walk(model) if _draws(node.layer, native)]
    if not drawing:
        raise nothing_to_draw(native)
    wanted: dict[int, tuple[Any, Methods]] = {}
    for layer in drawing:
        wanted.setdefault(id(layer), (layer, {}))[1]["call"] = _in_training(layer)
        for part in (node.layer for node in walk(layer)):
            silent = {f"get_{option}_mask": _ones(part) for option in _silent(part, native)}
            wanted.setdefault(id(part), (part, {}))[1].update(silent)
    try:
        with _METHODS.set(wanted.values()):
            forget_traces(model)
            yield model
    finally:
        forget_traces(model)


_NAMES = ("call", "get_dropout_mask", "get_recurrent_dropout_mask")


def _read_methods(layer: Any) -> Methods:
    """Return the methods that a layer has itself, before those of its class."""
    return {name: vars(layer)[name] for name in _NAMES if name in vars(layer)}


def _write_methods(layer: Any, methods: Methods) -> None:
    vars(layer).update(methods)
    for name in _NAMES:
        if name not in methods:
            vars(layer).pop(name, None)


_METHODS = Switches(_read_methods, _write_methods)
_PREDICTING: WeakKeyDictionary[keras.Model, ProcessLock] = WeakKeyDictionary()
_LOOKING_UP = ProcessLock()


def _one_at_a_time(model: keras.Model) -> AbstractContextManager[Any]:
    """Return the lock of a model, since Keras can predict with it in one thread at a time only.

    On JAX its variables are empty meanwhile, and on no backend is counting a seed one step.
    """
    with _LOOKING_UP():
        return _PREDICTING.setdefault(model, ProcessLock(threading.RLock))()


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
        The input of ``model.predict``. It is used n times, so it cannot be a generator that ends.
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
        ``mean`` and ``std``, NumPy arrays in the structure and dtype of the output, float32 where
        that is not floating. The standard deviation is that of a sample: divided by n − 1.

    Notes
    -----
    Several threads may use one model: they are served one after the other.

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
    n = count_of_draws(n, samples, output=output)
    arguments = {"verbose": 0, **arguments}
    tree = keras.tree.map_structure
    kept = []
    with _one_at_a_time(model), masks_on(model, native=native):
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
    mean, std = (tree(lambda y, z: z.astype(_dtype_of_mean(y)), first, z) for z in (mean, std))
    return Prediction(mean, std, tree(lambda *ys: np.stack(ys), *kept) if samples else None)


def _dtype_of_mean(y: np.ndarray) -> Any:
    """Return the dtype of the mean of arrays like this one; classes and truths have one, too."""
    return np.float32 if y.dtype.kind in "iub" else y.dtype


def _draws(layer: Any, native: bool) -> bool:
    """Return whether a layer should draw; of a recurrent layer, whether one of its cells should."""
    if isinstance(layer, keras.layers.RNN):
        return any(_draws(node.layer, native) for node in walk(layer) if node.layer is not layer)
    if mixin_of(layer) is DilutedHeads:  # its dropout is a layer of its own
        return False
    if isinstance(layer, QSD) or alphas(layer):
        return True
    return native and (isinstance(layer, NATIVE) or bool(rates(layer)))


def _silent(layer: Any, native: bool) -> list[str]:
    """Return the options of a cell that should not draw, although the cell is on."""
    if native or mixin_of(layer) is not DilutedCell:
        return []
    return [option for option in rates(layer) if option not in alphas(layer)]


def _in_training(layer: Any) -> Callable[..., Any]:
    call = layer.call
    call = getattr(call, "own_call", call)  # without the change of another context
    signature = inspect.signature(call)

    def in_training(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments["training"] = True
        return call(*bound.args, **bound.kwargs)

    in_training.own_call = call  # type: ignore[attr-defined]
    return in_training


def _ones(cell: Any) -> Callable[[Any], Any]:
    return lambda step_input: gate_masks(cell, step_input, lambda ones: ones)
