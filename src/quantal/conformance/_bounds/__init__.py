"""Tests whose error rates are bounds, not approximations, and the sample sizes they need.

Each test has the same three verbs:

- ``p_value(…)``: an upper bound on the probability of what was seen, or worse, if all is right;
- ``detectable(n, significance, power)``: the smallest fault that n samples reveal with that power;
- ``samples(fault, significance, power)``: how many samples reveal that fault with that power.

The last two are inverse to each other, and tests check them against each other and against
simulation. ``slack`` is a deviation that is allowed: a test with slack s judges only what lies
beyond s.
"""

from quantal.conformance._bounds.counts import Atoms, Proportion, Repeats
from quantal.conformance._bounds.distance import Kolmogorov
from quantal.conformance._bounds.rare import RareEvents
from quantal.conformance._bounds.search import POWER, Test, smallest
from quantal.conformance._bounds.sums import Coins, Correlation, Mean
from quantal.conformance._bounds.union import Largest, Overlapping, largest

__all__ = [
    "POWER",
    "Atoms",
    "Coins",
    "Correlation",
    "Kolmogorov",
    "Largest",
    "Mean",
    "Overlapping",
    "Proportion",
    "RareEvents",
    "Repeats",
    "Test",
    "largest",
    "smallest",
]
