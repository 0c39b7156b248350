"""Searches that the bounds share: how many samples, which root, which last count."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Protocol

__all__ = ["POWER", "Test", "last", "root", "samples_for", "shortfall", "smallest"]

POWER = 0.999
"""The probability with which each check reveals the fault that it states."""

_MOST = 2**40  # samples beyond which no one would wait


class Test(Protocol):
    """What every test can do."""

    @property
    def expected(self) -> float:
        """What a right implementation shows."""

    @property
    def slack(self) -> float:
        """A deviation that is allowed."""

    def estimate(self, seen: float, n: int) -> float:
        """Return what was seen as a share, a distance or a mean."""

    def p_value(self, seen: float, n: int) -> float:
        """Return a bound on the probability of what was seen, or worse, if all is right."""

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest fault that n samples reveal with that power."""

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return how many samples reveal that fault with that power."""


@functools.cache
def samples_for(test: Test, fault: float, significance: float, power: float) -> int:
    """Return the number of samples from which on a test detects a fault."""
    if fault <= test.slack:
        raise ValueError(f"a fault of {fault:g} is within the slack of {test.slack:g}")
    return smallest(lambda n: test.detectable(n, significance, power) <= fault)


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


def last(holds: Callable[[int], bool], n: int) -> int:
    """Return the largest k in range(n + 1) for which a falling predicate holds, or −1."""
    low, high = -1, n + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def root(f: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that is negative at one end and not at the other changes sign.

    Of the two floats around it, the one where f has the sign of ``high``.
    """
    rising = f(high) >= 0
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (low, middle) if (f(middle) >= 0) == rising else (middle, high)
    return high


def shortfall(n: int, power: float) -> float:
    """Return how far a mean of n values in [0, 1] may fall short, but for 1 − power."""
    return math.sqrt(-math.log(1 - power) / 2 / n)
