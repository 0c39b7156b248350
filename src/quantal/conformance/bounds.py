"""Tests whose error rates are bounds, not approximations, and the sample sizes they need.

Each test has the same three verbs:

- ``p_value(…)``: an upper bound on the probability of what was seen, or worse, if all is right;
- ``detectable(n, level, power)``: the smallest fault that n samples reveal with that power;
- ``samples(fault, level, power)``: how many samples reveal that fault with that power.

The last two are inverse to each other, and tests check them against each other and against
simulation. ``slack`` is a deviation that is allowed: a test with slack s judges only what lies
beyond s.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["POWER", "Atoms", "Correlation", "Kolmogorov", "Mean", "Proportion", "Test", "smallest"]

POWER = 0.999
"""The probability with which each check reveals the fault that it states."""

_MOST = 2**40  # samples beyond which no one would wait


def smallest(enough: Callable[[int], bool]) -> int:
    """Return an n for which ``enough`` holds and does not at n − 1, by bisection.

    Examples
    --------
    >>> smallest(lambda n: n**2 >= 1000)
    32
    """
    high = 1
    while not enough(high):
        high *= 2
        if high > _MOST:
            raise ValueError("no affordable number of samples is enough for such a fault")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


@dataclass(frozen=True)
class Proportion:
    """Independent trials that succeed with probability p: the exact binomial test, two-sided.

    Examples
    --------
    >>> coin = Proportion(0.5)
    >>> n = coin.samples(0.01, level=1e-9, power=0.999)
    >>> n, round(coin.detectable(n, level=1e-9, power=0.999), 6)
    (211737, 0.009998)
    """

    p: float
    slack: float = 0.0

    @property
    def expected(self) -> float:
        """The probability of success."""
        return self.p

    def estimate(self, seen: float, n: int) -> float:
        """Return the share of successes."""
        return seen / n

    def p_value(self, successes: float, n: int) -> float:
        """Return twice the smaller tail, each at the end of the slack where it is largest."""
        below, above = self._ends
        low = float(special.bdtr(successes, n, below))
        high = float(special.bdtrc(successes - 1, n, above)) if successes > 0 else 1.0
        return min(1.0, 2 * min(low, high))

    def detectable(self, n: int, level: float, power: float = POWER) -> float:
        """Return the smallest shift of p, up or down, that is found with that power."""
        below, above = self._ends
        # The largest count that is too few, and the smallest that is too many.
        few = _last(lambda k: 2 * special.bdtr(k, n, below) <= level, n)
        many = n - _last(lambda k: 2 * special.bdtrc(n - k - 1, n, above) <= level, n)
        down = _root(lambda p: special.bdtr(few, n, p) - power, 0, self.p) if few >= 0 else 0.0
        up = _root(lambda p: power - special.bdtrc(many - 1, n, p), self.p, 1) if many <= n else 1.0
        # A probability cannot fall below 0, so where no shift down can be found there may be none.
        return max(up - self.p, self.p - down)

    def samples(self, fault: float, level: float, power: float = POWER) -> int:
        """Return the number of trials that reveals a shift of p by ``fault``."""
        return _samples(self, fault, level, power)

    @property
    def _ends(self) -> tuple[float, float]:
        return max(self.p - self.slack, 0.0), min(self.p + self.slack, 1.0)


@dataclass(frozen=True)
class Kolmogorov:
    """Independent values of a known law: the Dvoretzky-Kiefer-Wolfowitz inequality, both sides.

    With Massart's constant it holds for every n and every law, atoms included. Values that have
    been rounded stand for an interval, so each side compares with the law at the interval's end
    that is in favour of the values.

    Examples
    --------
    >>> dkw = Kolmogorov()
    >>> n = dkw.samples(0.01, level=1e-9, power=0.999)
    >>> n, round(dkw.detectable(n, level=1e-9, power=0.999), 6)
    (263252, 0.01)
    """

    slack: float = 0.0

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
        seen, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
        upto = np.cumsum(counts) / np.sum(counts)
        before = upto - counts / np.sum(counts)
        too_many = upto - cdf(most(seen))
        too_few = cdf(least(seen)) - before
        return float(max(np.max(too_many), np.max(too_few), 0.0))

    @property
    def expected(self) -> float:
        """No distance."""
        return 0.0

    def estimate(self, seen: float, n: int) -> float:
        """Return the distance itself."""
        return seen

    def p_value(self, distance: float, n: int) -> float:
        """Return the bound on the probability of such a distance."""
        return min(1.0, 2 * math.exp(-2 * n * max(distance - self.slack, 0.0) ** 2))

    def detectable(self, n: int, level: float, power: float = POWER) -> float:
        """Return the smallest distance between laws that is found with that power."""
        return self.slack + math.sqrt(-math.log(level / 2) / 2 / n) + _miss(n, power)

    def samples(self, fault: float, level: float, power: float = POWER) -> int:
        """Return the number of values that reveals a distance of ``fault``."""
        return _samples(self, fault, level, power)


@dataclass(frozen=True)
class Mean:
    """The mean of independent values in [low, high] of known mean and variance.

    Bennett's inequality, which needs no central limit. (A bound on the variance will do too.) The
    power is by Hoeffding's, and so holds for every law on that interval.

    Examples
    --------
    >>> fair = Mean(0.5, 0.25, 0.0, 1.0)
    >>> n = fair.samples(0.01, level=1e-9, power=0.999)
    >>> n, round(fair.detectable(n, level=1e-9, power=0.999), 6)
    (263964, 0.01)
    """

    mean: float
    var: float
    low: float
    high: float
    slack: float = 0.0

    @property
    def expected(self) -> float:
        """The mean."""
        return self.mean

    def estimate(self, seen: float, n: int) -> float:
        """Return the mean itself."""
        return seen

    def p_value(self, mean: float, n: int) -> float:
        """Return the bound on the probability of such a mean of n values."""
        beyond = max(abs(mean - self.mean) - self.slack, 0.0)
        return min(1.0, 2 * math.exp(-n * self._exponent(beyond)))

    def detectable(self, n: int, level: float, power: float = POWER) -> float:
        """Return the smallest shift of the mean that is found with that power."""
        return self.slack + self._shift(n, level) + (self.high - self.low) * _miss(n, power)

    def samples(self, fault: float, level: float, power: float = POWER) -> int:
        """Return the number of values that reveals a shift of the mean by ``fault``."""
        return _samples(self, fault, level, power)

    def _shift(self, n: int, level: float) -> float:
        """Return the smallest deviation beyond the slack whose p-value is the level."""
        needed = -math.log(level / 2) / n
        # Bennett's bound is tighter than Bernstein's, which can be solved by hand.
        reach = math.sqrt(2 * self.var * needed) + self._furthest * needed
        return _root(lambda t: self._exponent(t) - needed, 0, reach)

    @property
    def _furthest(self) -> float:
        return max(self.high - self.mean, self.mean - self.low)

    def _exponent(self, shift: float) -> float:
        far = self._furthest
        u = far * shift / self.var
        return self.var / far**2 * ((1 + u) * math.log1p(u) - u)


@dataclass(frozen=True)
class Correlation:
    """Pairs of independent values, both in [low, high], of mean 0 and variance 1: their covariance.

    The covariance is taken about the sample's own means, so that a wrong law on its own is no
    correlation. That this moves it little is part of the bound.

    Examples
    --------
    >>> signs = Correlation(-1.0, 1.0)
    >>> n = signs.samples(0.01, level=1e-9, power=0.999)
    >>> n, round(signs.detectable(n, level=1e-9, power=0.999), 6)
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

    def detectable(self, n: int, level: float, power: float = POWER) -> float:
        """Return the smallest covariance that is found with that power."""
        return self._product.detectable(n, level - 2 * _RARE, power) + 2 * self._centring(n)

    def samples(self, fault: float, level: float, power: float = POWER) -> int:
        """Return the number of pairs that reveals a covariance of ``fault``."""
        return _samples(self, fault, level, power)

    @property
    def _product(self) -> Mean:
        ends = (self.low**2, self.high**2, self.low * self.high)
        return Mean(0.0, 1.0 + self.slack, min(ends), max(ends), slack=self.slack)

    def _centring(self, n: int) -> float:
        """Return a bound on the product of two sample means, but for 2·_RARE."""
        return Mean(0.0, 1.0 + self.slack, self.low, self.high)._shift(n, _RARE) ** 2


_RARE = 1e-16  # a probability next to which every share of a budget is large


@dataclass(frozen=True)
class Atoms:
    """Independent values none of which has a probability above ``most``: their largest count.

    The union bound over all values is largest where there are 1/``most`` of them.

    Examples
    --------
    >>> fine = Atoms(2**-16)
    >>> n = fine.samples(2**-11, level=1e-9, power=0.999)
    >>> n, fine.detectable(n, level=1e-9, power=0.999) <= 2**-11
    (66805, True)
    """

    most: float
    slack: float = 0.0

    @property
    def expected(self) -> float:
        """The probability that no value may exceed."""
        return self.most

    def estimate(self, seen: float, n: int) -> float:
        """Return the share of the most frequent value."""
        return seen / n

    def p_value(self, largest: float, n: int) -> float:
        """Return the bound on the probability that some value is seen so often."""
        return min(1.0, float(special.bdtrc(largest - 1, n, self.most)) / self.most)

    def detectable(self, n: int, level: float, power: float = POWER) -> float:
        """Return the smallest probability of a value that is found with that power."""
        many = n + 1 - _last(lambda k: self.p_value(n + 1 - k, n) <= level, n)
        if many > n:
            return 1.0
        return _root(lambda p: power - special.bdtrc(many - 1, n, p), self.most, 1)

    def samples(self, fault: float, level: float, power: float = POWER) -> int:
        """Return the number of values that reveals one of probability ``fault``."""
        return _samples(self, fault, level, power)


Test = Proportion | Kolmogorov | Mean | Correlation | Atoms


@functools.cache
def _samples(test: Test, fault: float, level: float, power: float) -> int:
    if fault <= test.slack:
        raise ValueError(f"a fault of {fault:g} is within the slack of {test.slack:g}")
    return smallest(lambda n: test.detectable(n, level, power) <= fault)


def _miss(n: int, power: float) -> float:
    """Return how far a mean of n values in [0, 1] may fall short, but for 1 − power."""
    return math.sqrt(-math.log(1 - power) / 2 / n)


def _last(holds: Callable[[int], bool], n: int) -> int:
    """Return the largest k in range(n + 1) for which a falling predicate holds, or −1."""
    low, high = -1, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that is negative at one end and not at the other changes sign.

    Of the two floats around it, the one where f has the sign of ``high``.
    """
    rising = f(high) >= 0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if (f(middle) >= 0) == rising else (middle, high)
    return high
