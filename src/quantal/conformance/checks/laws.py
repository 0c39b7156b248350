"""The laws that are tested, the faults that must be found in them, and what is allowed for."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from quantal.conformance.bounds import Kolmogorov, Mean, Proportion
from quantal.conformance.check import Finding, Trial
from quantal.dilution import Dilution

Floats = NDArray[np.float64]

LAWS = (Dilution(0.5, 1.0), Dilution(0.2, 0.2), Dilution(0.35, 5.0))
"""The laws of the checks of QSD proper: the first two are settings of the paper."""

RATE_FAULT = 0.01  # relative
ALPHA_FAULT = 0.05
MEAN_FAULT = 0.01
SECOND_MOMENT_FAULT = 0.02

CELL = 2.0**-16
"""A table of 2¹⁶ cells is a right implementation.

In one call it drops with a probability within a cell of the rate, and its law is within two cells
of the exact one. Given which of its two rows each call has chosen, units are independent, so
with this allowance the bounds hold for tables as they do for the exact law.
"""

ROUNDING = 2.0**-21
"""How far a float32 coefficient may be from its exact value, relatively: a few roundings."""

SMALLEST = float(np.finfo(np.float32).tiny)
"""Coefficients below it, and no others, may have been raised to it or flushed to zero."""


def drop_test(law: Dilution) -> Proportion:
    """Return the test of P(c = 0)."""
    return Proportion(law.rate, slack=CELL)


def size_test(law: Dilution) -> Kolmogorov:
    """Return the test of the kept coefficients."""
    return Kolmogorov(slack=2 * CELL / law.retain)


def moment_test(law: Dilution, k: int) -> Mean:
    """Return the test of E[cᵏ]: a row of the table shifts it by no more than a cell's worth."""
    var = law.moment(2 * k) - law.moment(k) ** 2
    top = law.ceiling**k
    return Mean(law.moment(k), var + CELL * top**2, 0.0, top, slack=2 * CELL * top)


def kept_cdf(law: Dilution, c: Floats) -> Floats:
    """Return P(coefficient ≤ c), given that the unit is kept."""
    return np.asarray((law.cdf(c) - law.rate) / law.retain)


def kept_distance(law: Dilution, kept: Floats, rounding: float = ROUNDING) -> float:
    """Return the Kolmogorov distance of kept coefficients from their law."""
    return Kolmogorov.distance(
        kept,
        lambda c: kept_cdf(law, c),
        least=lambda c: np.where(c <= SMALLEST, 0.0, c * (1 - rounding)),
        most=lambda c: c * (1 + rounding),
    )


@functools.cache
def alpha_fault(law: Dilution, relative: float = ALPHA_FAULT) -> float:
    """Return the Kolmogorov distance that a wrong α makes among the kept coefficients.

    The smaller one of α too large and α too small, and not looking where rounding blurs the law.
    """
    c = law.ppf(np.linspace(law.rate, 1, 2048))
    c = c[(c > SMALLEST) & (c < law.ceiling * (1 - 2.0**-14))]
    distances = []
    for factor in (1 + relative, 1 / (1 + relative)):
        wrong = Dilution(law.rate, law.alpha * factor, vary=law.vary, unit_mean=law.unit_mean)
        distances.append(float(np.max(np.abs(kept_cdf(wrong, c) - kept_cdf(law, c)))))
    return min(distances)


# --- questions that several checks ask -----------------------------------------------------------


def drops(trial: Trial, law: Dilution, fault: float = RATE_FAULT) -> Finding:
    """Ask whether P(c = 0) is the rate, by as many units as a relative fault of it needs."""
    test = drop_test(law)
    stated = fault * law.rate
    n = test.samples(stated, trial.level)
    dropped = int(np.count_nonzero(trial.subject.units(law, n) == 0))
    return trial.judge(f"P(c = 0), {law}", test, dropped, n, stated=stated)


def sizes(trial: Trial, law: Dilution, fault: float = ALPHA_FAULT) -> Finding:
    """Ask whether kept coefficients follow their law, by as many as a relative fault of α needs."""
    test = size_test(law)
    stated = alpha_fault(law, fault)
    kept = kept_units(trial, law, test.samples(stated, trial.level))
    distance = kept_distance(law, kept) if len(kept) else 1.0
    return trial.judge(f"kept c, {law}", test, distance, len(kept), stated=stated)


def moments(trial: Trial, law: Dilution, k: int, fault: float) -> Finding:
    """Ask whether E[cᵏ] is right, by as many units as a relative fault of it needs."""
    test = moment_test(law, k)
    stated = fault * law.moment(k)
    n = test.samples(stated, trial.level)
    mean = float(np.mean(trial.subject.units(law, n) ** k))
    return trial.judge(f"E[c{'' if k == 1 else '²'}], {law}", test, mean, n, stated=stated)


def all_alike(trial: Trial, law: Dilution) -> Finding:
    """Ask whether every kept coefficient is 1/p̄."""
    kept = kept_units(trial, law, 2**16)
    off = float(np.max(np.abs(kept / law.ceiling - 1), initial=0.0))
    detail = f"a kept coefficient differs from {law.ceiling:.6g} by {off:.2g} of it"
    return trial.require(
        f"kept c = 1/p̄, {law}", len(kept) > 0 and off < ROUNDING, detail, len(kept)
    )


def in_range(trial: Trial, law: Dilution, c: Floats, rounding: float = ROUNDING) -> Finding:
    """Ask whether no coefficient is negative, or above the ceiling."""
    low, high = float(np.min(c)), float(np.max(c))
    detail = f"coefficients from {low:.6g} to {high:.6g}"
    right = low >= 0 and high <= law.ceiling * (1 + rounding)
    return trial.require(f"0 ≤ c ≤ {law.ceiling:.4g}, {law}", right, detail, c.size)


def kept_units(trial: Trial, law: Dilution, count: int) -> Floats:
    """Return up to ``count`` kept coefficients, out of as many units as should hold them."""
    # Six standard deviations to spare; should they not do, the test has a few samples fewer.
    units = int((count + 6 * (count * law.rate) ** 0.5 + 40) / law.retain)
    c = trial.subject.units(law, units)
    return np.asarray(c[c != 0][:count])
