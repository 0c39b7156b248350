"""What `masks_on` and `predict_mc` share in every framework."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from quantal._arguments import flag, function_or_none, integer
from quantal._selection import Place

__all__ = ["Prediction", "Tally", "count_of_draws", "nothing_to_draw", "places_that_draw"]


class _MeanAndStd(NamedTuple):
    mean: Any
    std: Any


class Prediction(_MeanAndStd):
    """Mean and standard deviation of Monte-Carlo predictions; their structure is the model's.

    It unpacks as ``mean, std = …``.

    Attributes
    ----------
    mean, std
        Structured as the model's output.
    samples
        The predictions themselves, stacked along a new first axis, if they were asked for.

    Examples
    --------
    >>> mean, std = Prediction(1.0, 0.1)
    >>> mean, std, Prediction(1.0, 0.1, samples=[0.9, 1.1]).samples
    (1.0, 0.1, [0.9, 1.1])
    """

    samples: Any = None

    def __new__(cls, mean: Any, std: Any, samples: Any = None) -> Prediction:
        """Make one; ``samples`` is beside the tuple, not in it."""
        made = super().__new__(cls, mean, std)
        made.samples = samples
        return made


def count_of_draws(n: Any, samples: Any = False, **functions: Any) -> int:
    """Return how many Monte-Carlo predictions are asked for; check the options beside it.

    Examples
    --------
    >>> count_of_draws(1)
    Traceback (most recent call last):
    ValueError: n: expected an integer of at least 2 and below 2**31. Received: n=1
    """
    flag("samples", samples)
    for name, function in functions.items():
        function_or_none(name, function)
    return integer("n", n, "an integer of at least 2 and below 2**31", 2, 2**31)


def places_that_draw(places: Iterable[Place], native: bool) -> list[Place]:
    """Return the places that draw in `masks_on`: those of QSD, and with ``native`` all of them."""
    flag("native", native)
    drawing = [place for place in places if native or place.site.alpha is not None]
    if not drawing:
        raise nothing_to_draw(native)
    return drawing


class Tally:
    """What has run within `masks_on`, where only a run shows whether a model draws.

    Attributes
    ----------
    runs : int
        How often code of the model ran; it does not where JAX has compiled a function already.
    draws : int
        How often units were dropped because masks are on.
    """

    def __init__(self) -> None:
        self.runs = self.draws = 0

    def check(self, native: bool) -> None:
        """Raise if the model ran and nothing was drawn."""
        if self.runs and not self.draws:
            raise nothing_to_draw(native)


def nothing_to_draw(native: bool) -> ValueError:
    """Return the error for a model in which `masks_on` would change nothing.

    Examples
    --------
    >>> raise nothing_to_draw(native=True)
    Traceback (most recent call last):
    ValueError: model: expected one with QSD or dropout. Received: none in sites(model)
    """
    what = "QSD or dropout" if native else "QSD; with native=True, dropout will do"
    return ValueError(f"model: expected one with {what}. Received: none in sites(model)")
