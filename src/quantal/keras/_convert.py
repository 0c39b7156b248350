"""QSD in a model that somebody already has: `convert`, `revert`, `sites`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import keras

from quantal._selection import Alpha, Pattern, Selection
from quantal.keras._find_sites import forget_traces, walk
from quantal.keras._layers import QSD
from quantal.keras._reroute import own, rates
from quantal.keras._source_scan import calls
from quantal.keras._swap import (
    LAYERS,
    Converted,
    alphas,
    dilute_layer,
    dilute_option,
    mark_owners,
    restore,
)
from quantal.sites import Site, Sites

__all__ = ["convert", "revert", "sites"]


class _Place(NamedTuple):
    site: Site
    layer: Any
    option: str = ""  # empty: the layer as a whole


def convert(
    model: Any,
    alpha: Alpha,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
) -> Any:
    """Swap the dropout of a model for QSD, keeping every rate.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        It is changed in place: its layers stay the same objects, under the same names, with the
        same weights, and a compiled model stays compiled.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Which places are swapped: patterns of names as `sites` prints them, such as ``"encoder/*"``,
        or functions of (name, layer).
    strict : bool
        Whether dropout that cannot be swapped is an error, and the model left as it was. If not,
        it is a warning, and goes on as it was.

    Returns
    -------
    keras.Model or keras.layers.Layer
        The same model.

    Examples
    --------
    >>> import keras
    >>> from keras import layers
    >>> model = keras.Sequential([layers.Dense(8), layers.Dropout(0.5, name="drop")])
    >>> convert(model, alpha=1.0).get_layer("drop")
    <QSD name=drop, built=True>
    >>> revert(model).get_layer("drop")
    <Dropout name=drop, built=True>
    """
    selection = Selection(alpha, include, exclude, strict)
    found = [p for p in _places(model) if p.site.alpha is None and selection(p.site.name, p.layer)]
    chosen = [place for place in found if not place.site.unreached]
    laws = [selection.dilution(place.site.rate) for place in chosen]
    unreached = [place.site for place in found if place.site.unreached]
    selection.settle([place.site.name for place in chosen], unreached)
    for place, law in zip(chosen, laws, strict=True):
        if place.option:
            dilute_option(place.layer, place.option, law.alpha)
        else:
            dilute_layer(place.layer, law)
    mark_owners(model)
    forget_traces(model)
    return model


def revert(model: Any) -> Any:
    """Undo `convert`: every layer has its class back. Weights and changed rates are kept.

    Parameters
    ----------
    model : keras.Model or keras.layers.Layer
        It is changed in place. It may have been saved and loaded since it was converted.

    Returns
    -------
    keras.Model or keras.layers.Layer
        The same model.
    """
    for node in list(walk(model)):
        if isinstance(node.layer, Converted):
            restore(node.layer)
    forget_traces(model)
    return model


def sites(model: Any) -> Sites:
    """Return every place of a model where units are dropped; printed, a table.

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
    return Sites(place.site for place in _places(model))


def _places(model: Any) -> Iterator[_Place]:
    for node in own(model):
        layer, kind = node.layer, type(node.layer).__name__
        known = alphas(layer)
        for option, rate in rates(layer).items():
            name = f"{node.name}/{option}".lstrip("/")
            yield _Place(Site(name, kind, rate, known.get(option)), layer, option)
        if isinstance(layer, QSD):
            yield _Place(Site.of(node.name, kind, layer.dilution), layer)
        elif type(layer) in LAYERS:
            yield _Place(Site(node.name, kind, layer.rate), layer)
        elif reason := _out_of_reach(layer):
            yield _Place(Site(node.name, kind, layer.rate, unreached=reason), layer)
        for call in calls(layer):
            site = Site(node.name, call.function, call.rate, unreached=call.reason)
            yield _Place(site, layer)


def _out_of_reach(layer: Any) -> str:
    if isinstance(layer, keras.layers.Dropout):
        return "a subclass of Dropout, with code of its own"
    if isinstance(layer, keras.layers.GaussianDropout):
        return "multiplies by Gaussian noise: another law"
    if isinstance(layer, keras.layers.AlphaDropout):
        return "keeps the mean and variance of SELU units: another law"
    return ""
