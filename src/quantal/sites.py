"""What `convert`, `revert` and `sites` share in every framework: places, choices, words."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from quantal._errors import wrong_type, wrong_value
from quantal.dilution import Dilution, Vary

__all__ = [
    "Alpha",
    "Choice",
    "Pattern",
    "Prediction",
    "Selection",
    "Site",
    "Sites",
    "UnreachedWarning",
    "count_of_draws",
]

Alpha = float | Callable[[float], float]
Choice = str | Callable[[str, Any], bool]
Pattern = Choice | Sequence[Choice] | None

_CHOICE = (
    "a name pattern such as 'encoder.*', a function of (name, module), a list of these or None"
)


class UnreachedWarning(UserWarning):
    """Dropout that `convert` could not swap and that goes on as it was."""


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
        The probability that a unit is dropped; NaN where it cannot be read.
    alpha : float or None
        The homogeneity; None if it is not QSD.
    unreached : str
        Why `convert` cannot swap it; empty if it can.
    vary, unit_mean
        As in `quantal.Dilution`.
    """

    name: str
    kind: str
    rate: float
    alpha: float | None = None
    unreached: str = ""
    vary: Vary = "pq"
    unit_mean: bool = False

    @classmethod
    def of(cls, name: str, kind: str, law: Dilution) -> Site:
        """Return the site of a layer of QSD."""
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
    """The places of a model; printed, a table.

    Examples
    --------
    >>> Sites([Site("drop", "Dropout", 0.1), Site("head.drop", "QSD", 0.5, 1.0)])
    name       kind     rate  alpha  mean gain
    drop       Dropout  0.1   -      1
    head.drop  QSD      0.5   1      1.333
    2 sites, 1 of them QSD
    """

    __slots__ = ()

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


class Selection:
    """Which places `convert` swaps, and with which alpha: the arguments it shares everywhere.

    Parameters
    ----------
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of names, or functions of (name, module). Included is what matches
        ``include`` (all, if None) and does not match ``exclude``.
    strict : bool
        Whether a place that cannot be swapped is an error, or else a warning.

    Examples
    --------
    >>> chosen = Selection(lambda rate: 10 * rate, include="encoder.*")
    >>> chosen("encoder.drop", None), chosen("head.drop", None)
    (True, False)
    >>> chosen.dilution(0.5)
    Dilution(rate=0.5, alpha=5.0)
    """

    def __init__(
        self, alpha: Alpha, include: Pattern = None, exclude: Pattern = None, strict: bool = True
    ) -> None:
        self.alpha = alpha
        if not callable(alpha):
            Dilution(0.5, alpha)  # complain before anything is changed
        self._include = None if include is None else _choices("include", include)
        self._exclude = [] if exclude is None else _choices("exclude", exclude)
        self._strict = strict

    def __call__(self, name: str, module: Any) -> bool:
        """Whether the place of this name is to be swapped."""
        inside = self._include is None or _matches(self._include, name, module)
        return inside and not _matches(self._exclude, name, module)

    def dilution(self, rate: float) -> Dilution:
        """Return the law for a place with this rate."""
        return Dilution(rate, self.alpha(rate) if callable(self.alpha) else self.alpha)

    def settle(self, chosen: Sequence[str], unreached: Sequence[Site]) -> None:
        """Raise, or warn if not strict, where something is not as a user would think.

        That is a place that cannot be swapped, or no place at all. To be called before the first
        change, so that a refused model is left as it was.

        Parameters
        ----------
        chosen : sequence of str
            The names of the places to be swapped.
        unreached : sequence of Site
            The chosen places that cannot be.
        """
        if unreached:
            places = (f"  {s.name or '(model)'} ({s.kind}): {s.unreached}" for s in unreached)
            self._object(
                "\n".join(["dropout that convert cannot swap:", *places]),
                "Leave these out with exclude=, or pass strict=False to be warned instead.",
            )
        elif not chosen:
            self._object(
                "no dropout to swap: the model has none, or include= and exclude= leave none",
                "sites(model) lists what there is; strict=False makes this a warning.",
            )

    def _object(self, text: str, remedy: str) -> None:
        if self._strict:
            raise ValueError(f"{text}\n{remedy}")
        warnings.warn(text, UnreachedWarning, stacklevel=4)


class Prediction(NamedTuple):
    """Mean and standard deviation of Monte-Carlo predictions; their structure is the model's."""

    mean: Any
    std: Any


def count_of_draws(n: Any) -> int:
    """Return how many Monte-Carlo predictions are asked for.

    Examples
    --------
    >>> count_of_draws(1)
    Traceback (most recent call last):
    ValueError: n: expected an integer of at least 2. Received: n=1
    """
    if isinstance(n, bool) or not hasattr(n, "__index__"):
        raise wrong_type("n", "an integer of at least 2", n)
    if n.__index__() < 2:
        raise wrong_value("n", "an integer of at least 2", n)
    return int(n.__index__())


def _choices(name: str, given: Any) -> list[Choice]:
    listed = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
    if not all(isinstance(choice, str) or callable(choice) for choice in listed):
        raise wrong_type(name, _CHOICE, given)
    return listed


def _matches(choices: Iterable[Choice], name: str, module: Any) -> bool:
    return any(
        fnmatchcase(name, choice) if isinstance(choice, str) else choice(name, module)
        for choice in choices
    )
