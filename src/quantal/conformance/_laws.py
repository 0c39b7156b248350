"""The laws that are tested, and what is allowed for in a test of them."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from quantal.conformance._bounds import Kolmogorov, Mean, Proportion, Test
from quantal.dilution import Dilution, Vary
from quantal.keys import CELLS

__all__ = [
    "CELL",
    "DROPOUT",
    "EVERY",
    "EXTREME",
    "HIGH_RATES",
    "MAIN",
    "PLAIN",
    "UNIT_MEAN",
    "VARY_P",
    "VARY_Q",
    "affordable",
    "alpha_fault",
    "drawn_laws",
    "drop_test",
    "is_alike",
    "is_fine",
    "kept_cdf",
    "kept_distance",
    "lost",
    "moment_test",
    "size_test",
]

Floats = NDArray[np.float64]
INF = math.inf

MAIN = (Dilution(0.5, 1.0), Dilution(0.2, 0.2), Dilution(0.35, 5.0))
"""The laws that are tested to the smallest faults: the first two are settings of the paper."""


def _laws(
    pairs: Sequence[tuple[float, float]], vary: Vary = "pq", unit_mean: bool = False
) -> tuple[Dilution, ...]:
    return tuple(Dilution(rate, a, vary=vary, unit_mean=unit_mean) for rate, a in pairs)


# Each rate stands beside several α and each α beside several rates, so that an implementation
# which takes one for the other, or remembers the wrong one, is noticed. High rates and α from 10
# to 100 are what most implementations were never tried at.
PLAIN = _laws(
    [
        (0.01, 1.0), (0.05, 0.2), (0.1, 0.2), (0.1, 30.0), (0.15, 1000.0), (0.25, 0.05),
        (0.3, 100.0), (0.4, 2.0), (0.5, 5.0), (0.5, 10.0), (0.5, 50.0), (0.6, 0.5), (0.6, 10.0),
        (0.65, 300.0), (0.7, 20.0), (0.75, 1.0), (0.8, 0.2), (0.8, 5.0), (0.9, 1.0), (0.9, 10.0),
        (0.95, 0.3), (0.95, 3.0),
    ]
)  # fmt: skip
"""QSD proper at all rates and α."""

HIGH_RATES = _laws([(0.99, 2.0), (0.999, 5.0)])
"""Rates so high that a mean tells little: next to nothing is kept, and that is large."""

VARY_Q = _laws(
    [(0.35, 1.0), (0.1, 0.5), (0.2, 0.2), (0.3, 2.0), (0.5, 10.0), (0.6, 50.0), (0.8, 3.0),
     (0.9, 1.0), (0.96, 20.0)],
    "q",
)  # fmt: skip
VARY_P = _laws([(0.35, 1.0), (0.1, 0.2), (0.5, 10.0), (0.75, 50.0), (0.9, 5.0), (0.97, 2.0)], "p")
DROPOUT = _laws([(0.3, INF), (0.05, INF), (0.5, INF), (0.8, INF), (0.95, INF), (0.99, INF)])
UNIT_MEAN = (
    *_laws([(0.5, 1.0), (0.2, 0.2), (0.35, 30.0), (0.1, 5.0), (0.8, 2.0), (0.9, 10.0)], "pq", True),
    *_laws([(0.5, 1.0), (0.3, 0.5), (0.8, 5.0), (0.4, 30.0)], "q", True),
    *_laws([(0.5, 1.0), (0.7, 10.0), (0.95, 0.5)], "p", True),
    *_laws([(0.5, INF), (0.2, INF)], "pq", True),
)


EXTREME = (
    *_laws([(0.4, 1e-3), (0.4, 1e6), (0.8, 1e-3), (0.1, 1e6)]),
    *_laws([(0.3, 0.05), (0.3, 3e4)], "q"), *_laws([(0.6, 1e-3)], "p"),
    *_laws([(0.2, 0.01), (0.6, 1e5)], "pq", True), *_laws([(0.7, 0.05)], "q", True),
)  # fmt: skip
"""The ends of the range of α, for all that may vary."""

EVERY = (
    *MAIN, *PLAIN, *HIGH_RATES, *VARY_Q, *VARY_P, *DROPOUT, *UNIT_MEAN, *EXTREME
)  # fmt: skip


def drawn_laws(rng: np.random.Generator, count: int) -> tuple[Dilution, ...]:
    """Return laws at random, so that no gap between the others is safe for long."""
    rates = rng.uniform(0.02, 0.95, count).round(4)
    alphas = np.exp(rng.uniform(math.log(0.2), math.log(300), count)).round(3)
    varied: list[Vary] = [("pq", "q", "p", "pq")[index % 4] for index in range(count)]
    settings = zip(rates, alphas, varied, rng.random(count) < 0.3, strict=True)
    return tuple(
        Dilution(float(rate), float(alpha), vary=vary, unit_mean=bool(unit))
        for rate, alpha, vary, unit in settings
    )


CELL = 1 / CELLS
"""A table of 2¹⁶ cells is a right implementation.

In one call it drops with a probability within a cell of the rate, and its law is within two cells
of the exact one. Given which of its two rows each call has chosen, units are independent, so
with this allowance the bounds hold for tables as they do for the exact law.
"""


def is_alike(law: Dilution) -> bool:
    """Return whether all kept coefficients are the same."""
    return law.vary == "p" or math.isinf(law.alpha)


def is_fine(law: Dilution) -> bool:
    """Return whether single precision tells kept coefficients apart.

    At small β many of them lie so close to the ceiling that rounding makes them one.
    """
    if is_alike(law):
        return False
    return 1 - float(kept_cdf(law, np.asarray(law.ceiling * (1 - 2.0**-20)))) < CELL


def drop_test(law: Dilution, smallest: float = 0.0, cells: int = 1) -> Proportion:
    """Return the test of P(c = 0), where kept coefficients up to ``smallest`` may be 0 as well.

    In half precision these are many at a small α: 0.5% of all units at rate 0.2 and α 0.2, if
    sizes vary apart from the mask.
    """
    flushed = law.retain * lost(law, smallest)
    return Proportion(law.rate + flushed / 2, slack=cells * CELL + flushed / 2)


def lost(law: Dilution, smallest: float) -> float:
    """Return the share of kept coefficients up to ``smallest``, which may have become 0."""
    return 0.0 if is_alike(law) else float(kept_cdf(law, np.asarray(smallest)))


def size_test(law: Dilution, smallest: float = 0.0) -> Kolmogorov:
    """Return the test of the kept coefficients, of which those up to ``smallest`` may be gone."""
    return Kolmogorov(slack=2 * CELL / law.retain + lost(law, smallest))


def moment_test(law: Dilution, k: int, rounding: float = 0.0) -> Mean:
    """Return the test of E[cᵏ].

    A row of a table has one kept cell more or less, and its last cell may hold a value from
    anywhere within the cell. Rounding shifts no mean by more than its largest relative error. The
    power is for faults that do not make the variance more than half as large again.
    """
    mean, top = law.moment(k), law.ceiling**k * (1 + k * rounding)
    of_cells = 2 * CELL * (mean / law.retain + float(law.ppf(1 - CELL / 16)) ** k)
    # Where sizes lie close to the ceiling they may all be rounded the same way.
    slack = of_cells + k * rounding * mean
    var = law.moment(2 * k) - mean**2 + 2 * (of_cells + k * rounding * top) * top
    return Mean(mean, var, 0.0, top, slack=slack, fault_var=1.5 * var)


def affordable(test: Test, faults: Sequence[float], significance: float, most: int) -> float:
    """Return the first of some faults, from small to large, that so many samples reveal."""
    for fault in faults[:-1]:
        if fault > test.slack and test.detectable(most, significance) <= fault:
            return fault
    return faults[-1]


def kept_cdf(law: Dilution, c: Floats) -> Floats:
    """Return P(coefficient ≤ c), given that the unit is kept."""
    return np.asarray((law.cdf(c) - law.rate) / law.retain)


def kept_distance(law: Dilution, kept: Floats, rounding: float, smallest: float) -> float:
    """Return the Kolmogorov distance of kept coefficients from their law."""
    return Kolmogorov.distance(
        kept,
        lambda c: kept_cdf(law, c),
        least=lambda c: np.where(c <= smallest, 0.0, c * (1 - rounding)),
        most=lambda c: np.maximum(c * (1 + rounding), smallest),
    )


@functools.cache
def alpha_fault(law: Dilution, relative: float) -> float:
    """Return the Kolmogorov distance that a wrong α makes among the kept coefficients.

    The smaller one of α too large and α too small, and not looking where rounding blurs the law.
    ``unit_mean`` is left out: it only scales, and a wrong scale is found sooner.
    """
    law = Dilution(law.rate, law.alpha, vary=law.vary)
    c = law.ppf(np.linspace(law.rate, 1, 2048))
    c = c[(c > 2.0**-126) & (c < law.ceiling * (1 - 2.0**-14))]
    distances = []
    for factor in (1 + relative, 1 / (1 + relative)):
        wrong = Dilution(law.rate, law.alpha * factor, vary=law.vary)
        distances.append(float(np.max(np.abs(kept_cdf(law, c) - kept_cdf(wrong, c)))))
    return min(distances)
