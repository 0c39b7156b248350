"""Tests of counts: a proportion, the most frequent value, values that come back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from quantal.conformance._bounds.search import POWER, last, root, samples_for

__all__ = ["Atoms", "Proportion", "Repeats"]


@dataclass(frozen=True)
class Proportion:
    """Independent trials that succeed with probability p: the exact binomial test, two-sided.

    Examples
    --------
    >>> coin = Proportion(0.5)
    >>> n = coin.samples(0.01, significance=1e-9, power=0.999)
    >>> n, round(coin.detectable(n, significance=1e-9, power=0.999), 6)
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
        return float(self.p_values(successes, n))

    def p_values(self, successes: ArrayLike, n: ArrayLike) -> NDArray[Any]:
        """Return the same for many counts at once."""
        below, above = self._ends
        counts, trials = np.asarray(successes, np.float64), np.asarray(n, np.int64)
        low = special.bdtr(counts, trials, below)
        high = np.where(counts > 0, special.bdtrc(np.maximum(counts - 1, 0), trials, above), 1.0)
        return np.asarray(np.minimum(1.0, 2 * np.minimum(low, high)))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest shift of p, up or down, that is found with that power."""
        below, above = self._ends
        # The largest count that is too few, and the smallest that is too many.
        few = last(lambda k: 2 * special.bdtr(k, n, below) <= significance, n)
        many = n - last(lambda k: 2 * special.bdtrc(n - k - 1, n, above) <= significance, n)
        down = root(lambda p: special.bdtr(few, n, p) - power, 0, self.p) if few >= 0 else 0.0
        up = root(lambda p: power - special.bdtrc(many - 1, n, p), self.p, 1) if many <= n else 1.0
        # A probability cannot fall below 0, so where no shift down can be found there may be none.
        return max(up - self.p, self.p - down)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of trials that reveals a shift of p by ``fault``."""
        return samples_for(self, fault, significance, power)

    @property
    def _ends(self) -> tuple[float, float]:
        return max(self.p - self.slack, 0.0), min(self.p + self.slack, 1.0)


@dataclass(frozen=True)
class Atoms:
    """Independent values none of which has a probability above ``most``: their largest count.

    The union bound over all values is largest where there are 1/``most`` of them.

    Examples
    --------
    >>> fine = Atoms(2**-16)
    >>> n = fine.samples(2**-11, significance=1e-9, power=0.999)
    >>> n, fine.detectable(n, significance=1e-9, power=0.999) <= 2**-11
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

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest probability of a value that is found with that power."""
        many = n + 1 - last(lambda k: self.p_value(n + 1 - k, n) <= significance, n)
        if many > n:
            return 1.0
        return root(lambda p: power - special.bdtrc(many - 1, n, p), self.most, 1)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of values that reveals one of probability ``fault``."""
        return samples_for(self, fault, significance, power)


@dataclass(frozen=True)
class Repeats:
    """Independent values none of which has a probability above ``most``: how many come back.

    A value that was there before comes with a probability of at most ``most`` for each earlier
    one, so the number of those that do is bounded by that of independent trials (Chernoff). The
    fault is the share of values that are copies of earlier ones. Where only those are looked for
    that come back within a call, ``call`` is the largest number of values in one.

    Examples
    --------
    >>> fresh = Repeats(2**-16)
    >>> n = fresh.samples(0.1, significance=1e-9, power=0.999)
    >>> n, fresh.detectable(n, significance=1e-9, power=0.999) <= 0.1
    (205, True)
    """

    most: float
    call: int | None = None
    slack: float = 0.0

    expected = 0.0

    def estimate(self, seen: float, n: int) -> float:
        """Return the share of values that had been there before."""
        return seen / n

    def p_value(self, repeats: float, n: int) -> float:
        """Return the bound on the probability of so many repeats among n values."""
        earlier = (n if self.call is None else min(n, self.call)) - 1
        likely = self.most * n * earlier / 2
        if repeats <= likely or n < 2:
            return 1.0
        return math.exp(repeats - likely - repeats * math.log(repeats / likely))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest share of copies that is found with that power."""
        many = n + 1 - last(lambda k: self.p_value(n + 1 - k, n) <= significance, n)
        if n < 2 or many > n:
            return 1.0
        return root(lambda p: power - special.bdtrc(many - 1, n, p), 0, 1)

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of values that reveals a share of ``fault`` copies."""
        return samples_for(self, fault, significance, power)
