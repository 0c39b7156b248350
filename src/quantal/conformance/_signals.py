"""Coefficients as signals of mean 0 and variance 1, and their products over all distances.

A signal is what a coefficient shows: whether it was dropped, whether a kept one is large, whether
it is of middling size. If units are independent, the product of two signals, of two units however
far apart, has mean 0. A Fourier transform gives these means for all distances at once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from quantal.conformance._bounds import Largest, Mean, Overlapping, Proportion, largest
from quantal.conformance._laws import CELL, is_alike, kept_cdf
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

__all__ = [
    "Lagged",
    "Signal",
    "between_calls",
    "large_test",
    "least_likely",
    "pair_test",
    "signals",
    "within_calls",
]

_ROUNDING = 1e-5  # of a mean product, by a Fourier transform in float32
_MOST_BLURRED = 0.08  # of the kept, beyond which sizes say too little


@dataclass(frozen=True)
class Signal:
    """A signal of mean 0 and variance 1, its largest values, and how much of it rounding spoils.

    ``blur`` is the share of units that rounding may have moved from one side to the other.
    """

    name: str
    values: NDArray[np.float32]
    low: float
    high: float
    blur: float


def signals(law: Dilution, c: Floats, coarseness: float) -> list[Signal]:
    """Return the signals of coefficients: one or, where kept ones clearly differ, three.

    ``coarseness`` is how far rounding may have moved them, relatively.
    """
    kept = c != 0
    made = [_standardised("dropped", ~kept, law.rate, 1.0, None)]
    if (cuts := _cuts(law, coarseness)) is not None:
        levels, (low, middle, high), blur = cuts
        large = _standardised("large", c > middle, 1 - levels[1], law.retain, kept, blur)
        inner, share = (c > low) & (c <= high), levels[2] - levels[0]
        made += [large, _standardised("middling", inner, share, law.retain, kept, blur)]
    return made


def large_test(law: Dilution, coarseness: float, smallest: float) -> Proportion | None:
    """Return the test of how many kept coefficients are large; None where all are alike.

    Rounding may move those that lie close to the middle across it, and make 0 of the small ones,
    which are then not among the kept.
    """
    if (cuts := _cuts(law, coarseness)) is None:
        return None
    middle = cuts[1][1]
    ends = np.asarray([middle * (1 + coarseness), middle * (1 - coarseness), smallest])
    fewest, most, left = 1 - kept_cdf(law, ends)
    most = most / left
    return Proportion((fewest + most) / 2, slack=4 * CELL + (most - fewest) / 2)


def _standardised(
    name: str,
    hit: NDArray[np.bool_],
    share: float,
    of: float,
    among: NDArray[np.bool_] | None,
    blur: float = 0.0,
) -> Signal:
    """Return a hit as a signal: 0 for units that are not among those that could be one."""
    scale = (of * share * (1 - share)) ** -0.5
    low, high = -share * scale, (1 - share) * scale
    values = np.where(hit, np.float32(high), np.float32(low))
    if among is not None:
        values *= among
    return Signal(name, values, low, high, blur)


@functools.cache
def _cuts(
    law: Dilution, coarseness: float
) -> tuple[tuple[float, ...], tuple[float, ...], float] | None:
    """Return three quantiles of the kept coefficients, and where they are, if they clearly differ.

    And the share of units that rounding may move across two of them. At small β most of the kept
    lie so close to the ceiling that rounding makes them one: then the quantiles are those of the
    others.
    """
    if is_alike(law):
        return None
    apart = float(kept_cdf(law, np.asarray(law.ceiling * (1 - 2.0**-12))))
    levels = tuple(apart * share for share in (0.25, 0.5, 0.75))
    if levels[0] < 0.02:
        return None
    at = law.ppf(law.rate + law.retain * np.asarray(levels))
    moved = kept_cdf(law, at * (1 + coarseness)) - kept_cdf(law, at * (1 - coarseness))
    blur = 2 * float(np.max(moved))
    if blur > _MOST_BLURRED:
        return None
    return levels, tuple(float(one) for one in at), law.retain * blur


# --- products ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lagged:
    """Mean products of two signals over some distances; and of how many terms each is a mean."""

    names: tuple[str, str]
    means: Floats
    terms: NDArray[np.int64]


def pair_test(made: list[Signal], fault: float, of: int, sets: int = 2) -> Largest[Overlapping]:
    """Return the test of the worst of so many mean products, in so many independent sets.

    The fault is a share of units that are copies, or opposites, of others: it brings the largest
    products with it, which the power takes into account.
    """
    ends = [end for one in made for end in (one.low, one.high)]
    products = [a * b for a in ends for b in ends]
    width = max(end - start for start, end in ((one.low, one.high) for one in made))
    top = max(products)
    # Given its row, a table's signal is off by a few cells' worth, and its products by the square.
    slack = _ROUNDING + ((4 * CELL + max(one.blur for one in made)) * width) ** 2
    var = (1 + 4 * CELL * width**2) ** 2 + slack  # of a rate that is off by as much
    product = Mean(0.0, var, min(products), top, slack=slack, fault_var=var + fault * top)
    return Largest(Overlapping(product, sets=sets), of)


def within_calls(made: list[Signal], distances: int) -> Iterator[Lagged]:
    """Yield the mean products of units of one call, for arrays (calls, units)."""
    calls, units = made[0].values.shape
    terms = calls * (units - np.arange(1, distances + 1))
    for a, b, sums in _products(made, distances, apart=0):
        yield Lagged((a, b), sums[1 : distances + 1] / terms, terms)
        if a != b:
            yield Lagged((b, a), sums[-1 : -distances - 1 : -1] / terms, terms)


def between_calls(made: list[Signal], distances: int, apart: int) -> Iterator[Lagged]:
    """Yield those of units of two calls, the same number apart, from −distances to distances."""
    calls, units = made[0].values.shape
    lags = np.arange(-distances, distances + 1)
    terms = (calls - apart) * (units - np.abs(lags))
    for a, b, sums in _products(made, distances, apart):
        yield Lagged((a, b), sums[lags] / terms, terms)


def _products(made: list[Signal], distances: int, apart: int) -> Iterator[tuple[str, str, Floats]]:
    """Yield the sums of products by distance; negative distances are at the end."""
    length = fft.next_fast_len(made[0].values.shape[1] + distances, real=True)
    spectra = [fft.rfft(one.values, length) for one in made]
    for i, a in enumerate(made):
        for j, b in enumerate(made):
            if j < i and not apart:
                continue  # the same products, backwards
            first = spectra[i][: len(spectra[i]) - apart]
            cross = np.einsum("cf,cf->f", first.conj(), spectra[j][apart:])
            yield a.name, b.name, fft.irfft(cross, length)


def least_likely(
    lagged: list[Lagged], test: Largest[Overlapping]
) -> tuple[Lagged, int, float, int]:
    """Return of all mean products the least likely: whose, at which index, its mean, its terms."""
    found = [(one, largest(test.test, one.means, one.terms)) for one in lagged]
    one, (place, seen, terms) = min(
        found, key=lambda pair: float(test.test.log_p_values(pair[1][1], pair[1][2]))
    )
    return one, place, seen, terms
