"""What `masks_on` and `predict_mc` share in every framework."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from quantal._errors import wrong_type, wrong_value
from quantal._selection import Place

__all__ = ["Prediction", "count_of_draws", "nothing_to_draw", "places_that_draw"]


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


def places_that_draw(places: Iterable[Place], native: bool) -> list[Place]:
    """Return the places that draw in `masks_on`: those of QSD, and with ``native`` all of them."""
    drawing = [place for place in places if native or place.site.alpha is not None]
    if not drawing:
        raise nothing_to_draw(native)
    return drawing


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
