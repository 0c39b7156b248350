"""The places of a model where units are dropped, and how to bring QSD there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import keras

from quantal._selection import Place
from quantal.keras._backend import backend
from quantal.keras._layers import QSD
from quantal.keras._reroute import mixin_of, rates, walk_without_options
from quantal.keras._source_scan import NATIVE, CodeReader
from quantal.keras._swap import LAYERS, alphas, swap_layer, swap_option
from quantal.keras._walk import walk
from quantal.sites import Site

__all__ = ["find_sites"]


def find_sites(model: Any) -> Iterator[Place]:
    """Yield every place; its ``how`` is a function that puts QSD of an alpha there.

    For a place out of reach it is an `InCode`, which says where in the code it is, or None, if it
    is the layer's ``call``.
    """
    read_code = CodeReader(node.layer for node in walk(model))
    for node in walk_without_options(model):
        layer, kind = node.layer, type(node.layer).__name__
        known = alphas(layer)
        for option, rate in rates(layer).items():
            name = f"{node.name}/{option}".lstrip("/")
            reason = mixin_of(layer).missing(layer)  # type: ignore[union-attr]
            site = Site(name, kind, rate, known.get(option), unreached=reason)
            yield Place(site, layer, None if reason else partial(swap_option, layer, option))
        if isinstance(layer, QSD):
            yield Place(Site.of(node.name, kind, layer.dilution), layer)
        elif type(layer) in LAYERS:
            yield Place(Site(node.name, kind, layer.rate), layer, partial(swap_layer, layer))
        elif isinstance(layer, NATIVE):
            yield Place(Site(node.name, kind, layer.rate, unreached=_out_of_reach(layer)), layer)
        for found in read_code(layer):
            site = Site(node.name, found.kind, found.rate, unreached=found.reason)
            yield Place(site, layer, found)
        for site in backend.sites_of_modules(layer):
            name = f"{node.name}/{site.name}".strip("/")
            yield Place(replace(site, name=name), layer)


def _out_of_reach(layer: Any) -> str:
    if isinstance(layer, keras.layers.GaussianDropout):
        return "multiplies by Gaussian noise: another law"
    if isinstance(layer, keras.layers.AlphaDropout):
        return "keeps the mean and variance of SELU units: another law"
    return "a subclass of Dropout, with code of its own"
