"""What `convert` shares in the three JAX libraries: places, and the rates and alphas of them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from quantal._errors import wrong_value
from quantal._selection import Selection
from quantal.jax._functional import Number
from quantal.sites import Site

__all__ = ["Place", "alpha_for", "readable", "wanted"]


class Place(NamedTuple):
    """A site, and the module that drops units there."""

    site: Site
    module: Any


def wanted(selection: Selection, places: Iterable[Place]) -> tuple[list[Place], list[Site]]:
    """Return the places of dropout that are selected, and the sites among them out of reach."""
    chosen = [p for p in places if p.site.alpha is None and selection(p.site.name, p.module)]
    unreached = [place.site for place in chosen if place.site.unreached]
    return [place for place in chosen if not place.site.unreached], unreached


def readable(number: Number) -> float:
    """Return a number as a float: NaN in a trace, or where the layers of a stack differ.

    Examples
    --------
    >>> readable(0.5), readable(np.array([0.5, 0.5])), readable(np.array([0.1, 0.5]))
    (0.5, 0.5, nan)
    """
    if isinstance(number, jax.core.Tracer | jax.ShapeDtypeStruct):
        return math.nan
    values = np.unique(np.asarray(number))
    return float(values[0]) if values.size == 1 else math.nan


def alpha_for(selection: Selection, rate: Number) -> float:
    """Return the alpha of a place with this rate, which may be an array."""
    if isinstance(rate, numbers.Real):
        return selection.dilution(float(rate)).alpha
    if not callable(selection.alpha):
        return float(selection.alpha)
    if math.isnan(readable(rate)):
        expected = "a number, where a rate cannot be read or the layers of a stack differ in it"
        raise wrong_value("alpha", expected, selection.alpha)
    return selection.dilution(readable(rate)).alpha
