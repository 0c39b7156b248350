"""Tests of sums of independent terms: a mean, a covariance, coins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quantal.conformance._bounds.search import POWER, root, samples_for, shortfall

__all__ = ["Coins", "Correlation", "Mean"]


@dataclass(frozen=True)
class Mean:
    """The mean of independent values in [low, high] of known mean and variance.

    Bennett's inequality, which needs no central limit. (A bound on the variance will do too.) The
    power is by Hoeffding's inequality, for every law on that interval; or by Bernstein's, for
    faulty laws whose variance is at most ``fault_var``, if that is given.

    Examples
    --------
    >>> fair = Mean(0.5, 0.25, 0.0, 1.0)
    >>> n = fair.samples(0.01, significance=1e-9, power=0.999)
    >>> n, round(fair.detectable(n, significance=1e-9, power=0.999), 6)
    (263964, 0.01)
    """

    mean: float
    var: float
    low: float
    high: float
    slack: float = 0.0
    fault_var: float | None = None

    @property
    def expected(self) -> float:
        """The mean."""
        return self.mean

    def estimate(self, seen: float, n: int) -> float:
        """Return the mean itself."""
        return seen

    def p_value(self, mean: float, n: int) -> float:
        """Return the bound on the probability of such a mean of n values."""
        return float(np.exp(self.log_p_values(mean, n)))

    def log_p_values(self, means: ArrayLike, n: ArrayLike) -> NDArray[Any]:
        """Return the logarithms of the bounds for many means at once."""
        beyond = np.maximum(np.abs(np.asarray(means) - self.mean) - self.slack, 0.0)
        return np.asarray(np.minimum(0.0, math.log(2) - np.asarray(n) * self._exponent(beyond)))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest shift of the mean that is found with that power."""
        return self.slack + self.reach(n, significance) + self._shortfall(n, power)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of values that reveals a shift of the mean by ``fault``."""
        return samples_for(self, fault, significance, power)

    def reach(self, n: int, significance: float) -> float:
        """Return the smallest deviation beyond the slack whose p-value is the significance."""
        needed = -math.log(significance / 2) / n
        # Bennett's bound is tighter than Bernstein's, which can be solved by hand.
        far = math.sqrt(2 * self.var * needed) + self._furthest * needed
        return root(lambda t: float(self._exponent(t)) - needed, 0, far)

    def _shortfall(self, n: int, power: float) -> float:
        width = self.high - self.low
        by_hoeffding = width * shortfall(n, power)
        if self.fault_var is None:
            return by_hoeffding
        needed = -math.log(1 - power) / n
        return min(by_hoeffding, math.sqrt(2 * self.fault_var * needed) + width * needed / 3)

    @property
    def _furthest(self) -> float:
        return max(self.high - self.mean, self.mean - self.low)

    def _exponent(self, shift: ArrayLike) -> NDArray[Any]:
        far = self._furthest
        u = far * np.asarray(shift, np.float64) / self.var
        return np.asarray(self.var / far**2 * ((1 + u) * np.log1p(u) - u))


@dataclass(frozen=True)
class Correlation:
    """Pairs of independent values, both in [low, high], of mean 0 and variance 1: their covariance.

    The covariance is taken about the sample's own means, so that a wrong law on its own is no
    correlation. That this moves it little is part of the bound.

    Examples
    --------
    >>> signs = Correlation(-1.0, 1.0)
    >>> n = signs.samples(0.01, significance=1e-9, power=0.999)
    >>> n, round(signs.detectable(n, significance=1e-9, power=0.999), 6)
    (1084314, 0.01)
    """

    low: float
    high: float
    slack: float = 0.0

    expected = 0.0

    def estimate(self, seen: float, n: int) -> float:
        """Return the covariance itself."""
        return seen

    def p_value(self, covariance: float, n: int) -> float:
        """Return the bound on the probability of such a covariance of n pairs."""
        beyond = max(abs(covariance) - self._centring(n), 0.0)
        return min(1.0, self._product.p_value(beyond, n) + 2 * _RARE)

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest covariance that is found with that power."""
        return self._product.detectable(n, significance - 2 * _RARE, power) + 2 * self._centring(n)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of pairs that reveals a covariance of ``fault``."""
        return samples_for(self, fault, significance, power)

    @property
    def _product(self) -> Mean:
        ends = (self.low**2, self.high**2, self.low * self.high)
        return Mean(0.0, 1.0 + self.slack, min(ends), max(ends), slack=self.slack)

    def _centring(self, n: int) -> float:
        """Return a bound on the product of two sample means, but for 2·_RARE."""
        return Mean(0.0, 1.0 + self.slack, self.low, self.high).reach(n, _RARE) ** 2


_RARE = 1e-16  # a probability next to which every share of a budget is large


@dataclass(frozen=True)
class Coins:
    """Signs ±1, each fair whatever came before it, but for a bias within the slack: their mean.

    Products of fair coins are such signs too, whichever coins they are products of, as long as
    the last coin of each is in none before. The bound is Azuma's, and Hoeffding's for the power.

    Examples
    --------
    >>> signs = Coins()
    >>> n = signs.samples(0.1, significance=1e-9, power=0.999)
    >>> n, round(signs.detectable(n, significance=1e-9, power=0.999), 6)
    (10531, 0.099995)
    """

    slack: float = 0.0

    expected = 0.0

    def estimate(self, seen: float, n: int) -> float:
        """Return the mean itself."""
        return seen

    def p_value(self, mean: float, n: int) -> float:
        """Return the bound on the probability of such a mean of n signs."""
        return float(np.exp(self.log_p_values(mean, n)))

    def log_p_values(self, means: ArrayLike, n: ArrayLike) -> NDArray[Any]:
        """Return the logarithms of the bounds for many means at once."""
        beyond = np.maximum(np.abs(np.asarray(means)) - self.slack, 0.0)
        return np.asarray(np.minimum(0.0, math.log(2) - np.asarray(n) * beyond**2 / 2))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest mean that is found with that power."""
        reach = math.sqrt(-2 * math.log(significance / 2) / n)
        return self.slack + reach + 2 * shortfall(n, power)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of signs that reveals a mean of ``fault``."""
        return samples_for(self, fault, significance, power)
