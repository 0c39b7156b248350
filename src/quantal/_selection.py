"""Which places of a model `convert` swaps, and with which alpha: the same in every framework."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from quantal._arguments import flag
from quantal._errors import ALPHA, wrong_type
from quantal.dilution import Dilution
from quantal.sites import Site, UnreachedWarning

__all__ = ["Alpha", "Choice", "Pattern", "Place", "Selection"]

Alpha = float | Callable[[float], float]
Choice = str | Callable[[str, Any], bool]
Pattern = Choice | Sequence[Choice] | None

_CHOICE = (
    "a name pattern such as 'encoder.*', a function of (name, module), a list of these or None"
)
_NO_RATE = "its rate is known only when it runs: alpha must be a number here"


class Place(NamedTuple):
    """A site and its module.

    Attributes
    ----------
    site : Site
        What `sites` lists.
    module
        The module, layer or node of a model that drops units there.
    how
        The framework's own note of what has to be changed there.
    """

    site: Site
    module: Any
    how: Any = None


WhyNot = Callable[[Place, Sequence[Place], Sequence[Place]], str]


class Selection:
    """The arguments that `convert` has in every framework, and the choice that they make.

    Parameters
    ----------
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of names, or functions of (name, module). Included is what matches
        ``include`` (all, if None) and does not match ``exclude``.
    strict : bool
        True: a place that cannot be swapped is an error. False: it is a warning.

    Examples
    --------
    >>> selection = Selection(lambda rate: 10 * rate, include="encoder.*")
    >>> selection("encoder.drop", None), selection("head.drop", None)
    (True, False)
    >>> places = [Place(Site("encoder.drop", "Dropout", 0.5), None)]
    >>> [(place.site.name, alpha) for place, alpha in selection.choose(places)]
    [('encoder.drop', 5.0)]
    """

    def __init__(
        self,
        alpha: Alpha | None,
        include: Pattern = None,
        exclude: Pattern = None,
        strict: bool = True,
    ) -> None:
        if alpha is None or not callable(alpha):
            alpha = Dilution(0.5, alpha).alpha  # complain before anything is changed
        self.alpha: Alpha = alpha
        self._include = None if include is None else _choices("include", include)
        self._exclude = [] if exclude is None else _choices("exclude", exclude)
        self._strict = flag("strict", strict)

    def __call__(self, name: str, module: Any) -> bool:
        """Whether the place of this name is to be swapped."""
        inside = self._include is None or _matches(self._include, name, module)
        return inside and not _matches(self._exclude, name, module)

    def choose(
        self, places: Iterable[Place], why_not: WhyNot | None = None
    ) -> list[tuple[Place, float]]:
        """Return the places to be swapped, each with its alpha; nothing has been changed yet.

        What cannot be swapped raises here, or warns if not strict, and so does a wrong alpha: a
        refused model is left as it was.

        Parameters
        ----------
        places : iterable of Place
            All places of the model. Those that are QSD already are left alone.
        why_not : function, optional
            Called as ``why_not(place, selected, left_out)``; returns why a selected place cannot
            be swapped beside the others, or an empty string. ``site.unreached`` needs no repeating.
        """
        every = list(places)
        native = [place for place in every if place.site.alpha is None]
        selected = [place for place in native if self(place.site.name, place.module)]
        ids = {id(place) for place in selected}
        left_out = [place for place in native if id(place) not in ids]
        chosen, unreached = [], []
        for place in selected:
            reason = place.site.unreached or (why_not(place, selected, left_out) if why_not else "")
            if not reason and callable(self.alpha) and math.isnan(place.site.rate):
                reason = _NO_RATE
            if reason:
                unreached.append(replace(place.site, unreached=reason))
            else:
                chosen.append((place, self.alpha_for(place.site.rate)))
        self.settle([place.site.name for place, _ in chosen], unreached, len(every) - len(native))
        return chosen

    def alpha_for(self, rate: float) -> float:
        """Return the alpha for a place with this rate; NaN is an unknown rate."""
        if not callable(self.alpha):
            return self.alpha
        if math.isnan(rate):
            raise ValueError(_NO_RATE)
        alpha: Any = self.alpha(rate)
        if alpha is None:  # the function has returned None; the user did not leave alpha out
            raise wrong_type("alpha", f"a function that returns {ALPHA}", alpha)
        return Dilution(rate, alpha).alpha

    def dilution(self, rate: float) -> Dilution:
        """Return the law for a place with this rate."""
        return Dilution(rate, self.alpha_for(rate))

    def settle(self, chosen: Sequence[str], unreached: Sequence[Site], already: int = 0) -> None:
        """Raise, or warn if not strict, if a place cannot be swapped, or if there is no place.

        Parameters
        ----------
        chosen : sequence of str
            The names of the places to be swapped.
        unreached : sequence of Site
            The selected places that cannot be.
        already : int
            How many places are QSD already.
        """
        if unreached:
            places = (f"  {s.name or '(model)'} ({s.kind}): {s.unreached}" for s in unreached)
            self._object(
                "\n".join(["dropout that convert cannot swap:", *places]),
                "Leave these out with exclude=, or pass strict=False to be warned instead.",
            )
        elif not chosen and already:
            self._object(
                f"no dropout to swap: QSD is in {already} place{'s' * (already != 1)} already, and "
                "other dropout is not there or left out",
                "For another alpha, call revert(model) first where convert has made the QSD, or "
                "change your own QSD layers; sites(model) lists what there is; strict=False makes "
                "this a warning.",
            )
        elif not chosen:
            self._object(
                "no dropout to swap: the model has none, or include= and exclude= leave none",
                "sites(model) lists what there is; strict=False makes this a warning.",
            )

    def _object(self, text: str, remedy: str) -> None:
        if self._strict:
            raise ValueError(f"{text}\n{remedy}")
        warnings.warn(text, UnreachedWarning, stacklevel=_first_caller_outside())


def _choices(name: str, given: Any) -> list[Choice]:
    try:
        listed = list(given) if isinstance(given, (list, tuple, set, frozenset)) else [given]
        return [str.__str__(c) if isinstance(c, str) else _function(c) for c in listed]
    except Exception:  # a TypeError, or what somebody's own class raises
        raise wrong_type(name, _CHOICE, given) from None


def _function(choice: Any) -> Choice:
    if not callable(choice):
        raise TypeError
    return choice  # type: ignore[no-any-return]


def _matches(choices: Iterable[Choice], name: str, module: Any) -> bool:
    return any(
        fnmatchcase(name, choice) if isinstance(choice, str) else choice(name, module)
        for choice in choices
    )


def _first_caller_outside() -> int:
    """Return the ``stacklevel`` for the caller's warning to point at the user's code.

    That is the first frame outside of this package, however deep inside it the warning is raised.
    """
    frame, level = inspect.currentframe(), 0
    while frame and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "quantal":
        frame, level = frame.f_back, level + 1
    return level
