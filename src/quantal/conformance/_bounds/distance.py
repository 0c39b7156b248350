"""The test of a law: how far the values that were seen are from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quantal.conformance._bounds.search import POWER, samples_for, shortfall

__all__ = ["Kolmogorov"]

_POINTS = 4096  # at which a distance is looked for: between them it grows by 1/4096 at most


@dataclass(frozen=True)
class Kolmogorov:
    """Independent values of a known law: the Dvoretzky-Kiefer-Wolfowitz inequality, both sides.

    With Massart's constant it holds for every n and every law, atoms included. Values that have
    been rounded stand for an interval, so each side compares with the law at the interval's end
    that is in favour of the values.

    Examples
    --------
    >>> dkw = Kolmogorov()
    >>> n = dkw.samples(0.01, significance=1e-9, power=0.999)
    >>> n, round(dkw.detectable(n, significance=1e-9, power=0.999), 6)
    (276592, 0.01)
    """

    slack: float = 0.0

    expected = 0.0

    @staticmethod
    def distance(
        values: ArrayLike,
        cdf: Callable[[NDArray[Any]], NDArray[Any]],
        least: Callable[[NDArray[Any]], NDArray[Any]],
        most: Callable[[NDArray[Any]], NDArray[Any]],
    ) -> float:
        """Return the one-sided distance that is the larger.

        ``least`` and ``most`` give the ends of the interval that a value stands for.
        """
        ordered = np.sort(np.asarray(values, np.float64))
        step = -(-len(ordered) // _POINTS)
        at = np.unique(np.append(ordered[step - 1 :: step], ordered[[0, -1]]))
        upto = np.searchsorted(ordered, at, "right") / len(ordered)
        before = np.searchsorted(ordered, at, "left") / len(ordered)
        too_many = upto - cdf(most(at))
        too_few = cdf(least(at)) - before
        return float(max(np.max(too_many), np.max(too_few), 0.0))

    def estimate(self, seen: float, n: int) -> float:
        """Return the distance itself."""
        return seen

    def p_value(self, distance: float, n: int) -> float:
        """Return the bound on the probability of such a distance."""
        return min(1.0, 2 * math.exp(-2 * n * max(distance - self.slack, 0.0) ** 2))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest distance between laws that is found with that power."""
        reach = math.sqrt(-math.log(significance / 2) / 2 / n)
        return self.slack + 1 / _POINTS + reach + shortfall(n, power)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of values that reveals a distance of ``fault``."""
        return samples_for(self, fault, significance, power)
