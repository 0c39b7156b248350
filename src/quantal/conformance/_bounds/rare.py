"""The test of a rate so small that a table may have no cell for it in half of the calls."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from quantal.conformance._bounds.search import POWER, last, root, samples_for

__all__ = ["RareEvents"]

_TILTS = np.concatenate([-np.geomspace(20, 1e-3, 200), np.geomspace(1e-3, 5, 200)])


@dataclass(frozen=True)
class RareEvents:
    """Rare events in calls of ``size`` units: their number in n calls.

    In each call the units may share a probability that is one of two neighbouring multiples of
    ``cell``, as long as its mean is the rate; independent units vary less. Chernoff's bound on
    the worst of these cases.

    Examples
    --------
    >>> rare = RareEvents(2.0**-17, size=2**17, cell=2.0**-16)
    >>> n = rare.samples(2.0**-17, significance=1e-9, power=0.999)
    >>> n, rare.detectable(n, significance=1e-9, power=0.999) <= 2.0**-17
    (231, True)
    """

    rate: float
    size: int
    cell: float
    slack: float = 0.0

    @property
    def expected(self) -> float:
        """The rate."""
        return self.rate

    def estimate(self, seen: float, n: int) -> float:
        """Return the rate that so many events in n calls show."""
        return seen / (n * self.size)

    def p_value(self, events: float, n: int) -> float:
        """Return the bound on the probability of so many events, or so few, in n calls."""
        return min(1.0, 2 * min(_tail(self, self.rate, events, n, up) for up in (True, False)))

    def detectable(self, n: int, significance: float, power: float = POWER) -> float:
        """Return the smallest rise of the rate that is found; all of it going is found too."""
        if 2 * _tail(self, self.rate, 0, n, up=False) > significance:
            return math.inf
        enough = math.ceil(n * self.size * self.rate)
        most = 64 * (enough + 64)
        too_many = most - last(lambda k: self._too_many(most - k, n, significance), most - enough)

        def missed(rate: float) -> float:
            return (1 - power) - _tail(self, rate, too_many - 1, n, up=False)

        return root(missed, self.rate, 1e3 * self.rate) - self.rate

    def samples(self, fault: float, significance: float, power: float = POWER) -> int:
        """Return the number of calls that reveals a rise of the rate by ``fault``."""
        return samples_for(self, fault, significance, power)

    def _too_many(self, events: int, n: int, significance: float) -> bool:
        return 2 * _tail(self, self.rate, events, n, up=True) <= significance


def _tail(test: RareEvents, rate: float, events: float, n: int, up: bool) -> float:
    """Return the bound on the probability of at least, or at most, so many events at a rate."""
    cells = math.floor(rate / test.cell)
    share = rate / test.cell - cells
    tilts = _TILTS[_TILTS > 0] if up else _TILTS[_TILTS < 0]
    grown = np.expm1(tilts) * test.size * test.cell
    # The logarithm of the moment generating function of one call: a mixture of two Poissons.
    one = cells * grown + np.logaddexp(
        np.log1p(-share), math.log(share) + grown if share > 0 else -np.inf
    )
    return float(np.exp(min(0.0, float(np.min(n * one - tilts * events)))))
