"""The places of a model where units are dropped, as every framework's `sites` lists them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, get_args

import numpy as np

from quantal._arguments import flag, instance, word
from quantal._errors import wrong_type
from quantal.dilution import Dilution, Vary

__all__ = ["Site", "Sites", "UnreachedWarning"]


class UnreachedWarning(UserWarning):
    """Dropout that `convert` could not turn into QSD, and that stays dropout."""


class _Law(Protocol):
    """What a `Dilution` and every QSD layer have in common."""

    @property
    def rate(self) -> Any: ...
    @property
    def alpha(self) -> Any: ...
    @property
    def vary(self) -> Vary: ...
    @property
    def unit_mean(self) -> bool: ...


@dataclass(frozen=True)
class Site:
    """One place of a model where units are dropped.

    Parameters
    ----------
    name : str
        Its path in the model, as the framework writes it.
    kind : str
        What drops units there, such as ``"Dropout"``, ``"LSTM"`` or ``"QSD"``.
    rate : float
        The probability that a unit is dropped; NaN where it cannot be read. An array counts as the
        one number in it, and as NaN if there are several.
    alpha : float or None
        The homogeneity, read in the same way; None if it is not QSD.
    unreached : str
        Why `convert` cannot turn it into QSD; empty if it can.
    vary, unit_mean
        As in `quantal.Dilution`.

    Examples
    --------
    >>> Site("drop", "QSD", np.array([0.5, 0.5]), 1).rate
    0.5
    """

    name: str
    kind: str
    rate: float
    alpha: float | None = None
    unreached: str = ""
    vary: Vary = "pq"
    unit_mean: bool = False

    def __post_init__(self) -> None:
        for name in ("name", "kind", "unreached"):
            instance(name, getattr(self, name), str, "a string")
        object.__setattr__(self, "vary", word("vary", self.vary, get_args(Vary)))
        object.__setattr__(self, "unit_mean", flag("unit_mean", self.unit_mean))
        object.__setattr__(self, "rate", _readable(self.rate))
        if self.alpha is not None:
            object.__setattr__(self, "alpha", _readable(self.alpha))

    @classmethod
    def of(cls, name: str, kind: str, law: _Law) -> Site:
        """Return the site of a QSD layer, given the layer itself or its `Dilution`."""
        return cls(name, kind, law.rate, law.alpha, vary=law.vary, unit_mean=law.unit_mean)

    @property
    def mean_gain(self) -> float:
        """The mean of the coefficients, E[c]: 1 for dropout, NaN if it cannot be told."""
        if self.alpha is None:
            return 1.0
        if math.isnan(self.rate) or math.isnan(self.alpha):
            return math.nan
        return Dilution(self.rate, self.alpha, vary=self.vary, unit_mean=self.unit_mean).mean


class Sites(tuple[Site, ...]):
    """The places of a model where units are dropped; prints as a table.

    Examples
    --------
    >>> Sites([Site("drop", "Dropout", 0.1), Site("head.drop", "QSD", 0.5, 1.0)])
    name       kind     rate  alpha  mean gain
    drop       Dropout  0.1   -      1
    head.drop  QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """

    __slots__ = ()

    def __new__(cls, sites: Iterable[Site] = ()) -> Sites:
        """Make one of sites in their order."""
        expected = "an iterable of Site"
        try:
            given = iter(sites)
        except Exception:  # a TypeError, or what somebody's own class raises
            raise wrong_type("sites", expected, sites) from None
        return super().__new__(cls, (instance("sites", site, Site, expected) for site in given))

    def __repr__(self) -> str:
        rows = [("name", "kind", "rate", "alpha", "mean gain", "")]
        for site in self:
            alpha = "-" if site.alpha is None else f"{site.alpha:.4g}"
            note = f"out of reach: {site.unreached}" if site.unreached else ""
            gain = f"{site.mean_gain:.4g}"
            rows.append((site.name or "(model)", site.kind, f"{site.rate:.4g}", alpha, gain, note))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        swapped = sum(site.alpha is not None for site in self)
        total = f"{len(self)} site{'s' * (len(self) != 1)}, {swapped} of them QSD"
        return "\n".join([*lines, total])


def _readable(number: Any) -> float:
    """Return a number, or an array that holds one number only, as a float; NaN for all else.

    In a trace, and where the layers of a stack differ, there is no one number to be read.
    """
    if type(number) is float:  # nearly always
        return number
    try:
        values = np.unique(np.asarray(number, dtype=np.float64))
    except Exception:  # also what JAX, TensorFlow and Keras raise in a trace
        return math.nan
    return float(values[0]) if values.size == 1 else math.nan
