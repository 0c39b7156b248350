"""Tests made of tests: the largest of many sums, and sums whose terms overlap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from quantal.conformance._bounds.search import POWER, Test, samples_for
from quantal.conformance._bounds.sums import Coins, Mean

__all__ = ["Largest", "Overlapping", "largest"]

AnyTest = TypeVar("AnyTest", bound=Test)


@dataclass(frozen=True)
class _Parts(Generic[AnyTest]):
    """Something made of parts, each of which has the same test."""

    test: AnyTest

    @property
    def expected(self) -> float:
        """What is expected of each."""
        return self.test.expected

    @property
    def slack(self) -> float:
        """The slack of each."""
        return self.test.slack


@dataclass(frozen=True)
class Overlapping(_Parts[Mean]):
    """A mean of terms that fall into so many sets, within each of which they are independent.

    Janson's inequality: the bound is that for n divided by the number of sets. Products of units
    that are a fixed distance apart, for instance, fall into two such sets.

    Examples
    --------
    >>> pairs = Overlapping(Mean(0.0, 1.0, -1.0, 1.0), sets=2)
    >>> pairs.p_value(0.1, 2000) == Mean(0.0, 1.0, -1.0, 1.0).p_value(0.1, 1000)
    True
    """

    sets: int

    def estimate(self, seen: float, n: int) -> float:
        """Return the mean itself."""
        return seen

    def p_value(self, seen: float, n: int) -> float:
        """Return the bound on the probability of such a mean of n terms."""
        return float(np.exp(self.log_p_values(seen, n)))

    def log_p_values(self, means: ArrayLike, n: ArrayLike) -> np.ndarray:
        """Return the logarithms of the bounds for many means at once."""
        return self.test.log_p_values(means, np.asarray(n) / self.sets)

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest shift of the mean that is found with that power."""
        return self.test.detectable(max(n // self.sets, 1), significance, power)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of terms that reveals a shift by ``fault``."""
        return samples_for(self, fault, significance, power)


@dataclass(frozen=True)
class Largest(_Parts[AnyTest]):
    """The one of many tests that came out worst; what they share or not makes no difference.

    Examples
    --------
    >>> worst = Largest(Coins(), of=1000)
    >>> worst.p_value(0.1, 5000) == 1000 * Coins().p_value(0.1, 5000)
    True
    """

    of: int

    def estimate(self, seen: float, n: int) -> float:
        """Return what the worst one has seen."""
        return self.test.estimate(seen, n)

    def p_value(self, seen: float, n: int) -> float:
        """Return the bound on the probability that any of them is so bad."""
        return min(1.0, self.of * self.test.p_value(seen, n))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest fault in one of them that is found with that power."""
        return self.test.detectable(n, significance / self.of, power)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return how many samples each of them needs to reveal that fault."""
        return samples_for(self, fault, significance, power)


_Sums = TypeVar("_Sums", Coins, Overlapping, Mean)


def largest(test: _Sums, means: ArrayLike, n: ArrayLike) -> tuple[int, float, int]:
    """Return the index of the least likely of many means, that mean, and its number of terms."""
    means, n = np.broadcast_arrays(np.asarray(means, np.float64), np.asarray(n))
    worst = int(np.argmin(test.log_p_values(means, n)))
    if np.isnan(means).any():
        worst = int(np.flatnonzero(np.isnan(means))[0])
    return worst, float(means.flat[worst]), int(n.flat[worst])
