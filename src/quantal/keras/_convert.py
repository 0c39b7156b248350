"""QSD in an existing model: `convert`, `revert`, `sites`."""

from __future__ import annotations

from typing import Any

from quantal._selection import Alpha, Pattern, Place, Selection
from quantal.keras._find_sites import find_sites
from quantal.keras._swap import Converted, mark_owners, restore
from quantal.keras._walk import check_model, forget_traces, walk
from quantal.keras._watch import build, unknown_places
from quantal.sites import Sites

__all__ = ["convert", "revert", "sites"]


def convert(
    model: Any,
    alpha: Alpha | None = None,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
    example: Any = None,
) -> Any:
    """Turn every dropout of a model into QSD with the same rate.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        It is changed in place: its layers stay the same objects, under the same names, with the
        same weights, and a compiled model stays compiled.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Which places to convert: patterns of names as `sites` prints them, such as
        ``"encoder/*"``, or functions of (name, layer).
    strict : bool
        True: dropout that cannot be converted is an error, and the model is not changed.
        False: it is a warning, and that dropout stays.
    example : optional
        An input of the model, a tuple of its positional arguments, or a function (of the model, or
        of nothing) that runs it as it is trained. This training pass is watched, and whatever
        drops units in it and does not become QSD is named, wherever it stands. Afterwards
        variables and random states are as they were; a model that was not built is built.

    Returns
    -------
    keras.Model or keras.layers.Layer
        The same model.

    Examples
    --------
    >>> import keras
    >>> from keras import layers
    >>> parts = layers.Dense(8), layers.Dropout(0.5, name="drop")
    >>> model = keras.Sequential([keras.Input((4,)), *parts])
    >>> convert(model, alpha=1.0).get_layer("drop")
    <QSD name=drop, built=True>
    >>> revert(model).get_layer("drop")
    <Dropout name=drop, built=True>
    """
    check_model(model)
    selection = Selection(alpha, include, exclude, strict)
    for place, law_alpha in selection.choose(_find_all_sites(model, example)):
        place.how(law_alpha)
    mark_owners(model)
    forget_traces(model)
    return model


def revert(model: Any) -> Any:
    """Undo `convert`: every layer is dropout again. Weights and changed rates are kept.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        It is changed in place. It may have been saved and loaded since it was converted.

    Returns
    -------
    keras.Model or keras.layers.Layer
        The same model.

    Examples
    --------
    >>> import keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.5, name="drop")])
    >>> revert(convert(model, alpha=1.0)).get_layer("drop")
    <Dropout name=drop, built=True>
    """
    check_model(model)
    for node in list(walk(model)):
        if isinstance(node.layer, Converted):
            restore(node.layer)
    forget_traces(model)
    return model


def sites(model: Any, *, example: Any = None) -> Sites:
    """Return every place of a model where units are dropped; prints as a table.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        The model.
    example : optional
        As in `convert`: what only a training pass shows is listed, too.

    Examples
    --------
    >>> import keras
    >>> from keras import layers
    >>> parts = layers.LSTM(4, dropout=0.2, name="lstm"), layers.Dropout(0.5, name="x")
    >>> model = keras.Sequential(parts)
    >>> sites(convert(model, alpha=2.0, include="lstm*"))
    name               kind      rate  alpha  mean gain
    lstm/cell/dropout  LSTMCell  0.2   2      1.071
    x                  Dropout   0.5   -      1
    2 sites, 1 of them QSD
    """
    check_model(model)
    return Sites(place.site for place in _find_all_sites(model, example))


def _find_all_sites(model: Any, example: Any) -> list[Place]:
    if example is None:
        return list(find_sites(model))
    build(model, example)
    found = list(find_sites(model))
    return found + unknown_places(model, example, found)
