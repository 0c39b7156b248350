"""The beta distribution cut into cells of equal probability: the mean of p over each of them.

The quantiles at the centres of all cells are interpolated, from some 30 for each doubling of the
distance from either end. The mean over a cell is the value at its centre and differences to its
neighbours; where cells are too wide for that, at the ends, it is an exact partial moment.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from quantal._beta import NORMAL, Floats, LogOdds, log_odds

__all__ = ["cell_moments"]

_FURTHEST = 700.0  # log-odds that a float64 can hold as p
_PART = 2**13  # cells that are worked on at a time
_ENDS = 32  # cells at either end that are looked at one by one
_WIDE = 0.1  # log-odds from one cell to the next that differences can still cope with …
_MATTERS = 45.0  # … unless p, or 1 − p, is below 1e-19 anyway


def cell_moments(a: float, b: float, cells: int, *powers: int) -> list[Floats]:
    """Return E[pᵏ], k = 1 or 2, over ``cells`` equal shares of the probability of Beta(a, b).

    Examples
    --------
    >>> cell_moments(1.0, 1.0, 4, 1)[0].round(12)
    array([0.125, 0.375, 0.625, 0.875])
    """
    x_at = log_odds(a, b)
    x = _at_centres(x_at, cells)
    found = [x, *(np.empty(cells) for _ in powers[1:])]  # the first in the place of x
    apart = _cells_apart(cells, _means_from_centres(x, powers, found))
    for power, means in zip(powers, found, strict=True):
        means[apart] = _means_one_by_one(x_at, a, b, power, apart, cells)
        _correct_total(means, cells * _moment(a, b, power))
        falls = np.flatnonzero(means[1:] < means[:-1])
        if falls.size:  # by rounding, close to p = 1; to mend all would cost more than to look
            np.maximum.accumulate(means[falls[0] :], out=means[falls[0] :])
        if means[0] < 0 or means[-1] > 1:
            np.clip(means, 0, 1, out=means)
    return found


def _correct_total(means: Floats, total: float) -> None:
    """Give what rounding has left of a total to the cells where p is neither 0 nor 1."""
    parts = [means[start : start + _PART] for start in range(0, means.size, _PART)]
    found = float(np.sum(means))
    room = found - float(np.einsum("i,i->", means, means))
    if room < 1e-6 * found:  # which is all that rounding has left of the difference
        room = sum(float(np.sum(part * (1 - part))) for part in parts)
    share = (total - found) / max(room, 1e-300)
    for part in parts:
        change = part - 1
        change *= part
        change *= share
        part -= change


# --- quantiles at the centres of the cells --------------------------------------------------------


def _at_centres(x_at: LogOdds, cells: int) -> Floats:
    """Return the log-odds of the quantiles in the middle of each cell."""
    lower, upper = _plan(cells // 2), _plan(cells - cells // 2)
    # The distance to the nearer end keeps its digits; both halves at once, since that is faster.
    from_below, from_above = lower.knots / cells, upper.knots / cells
    x = x_at(
        np.concatenate([from_below, 1 - from_above]), np.concatenate([1 - from_below, from_above])
    )
    x_below, x_above = x[: from_below.size], x[from_below.size :]
    if lower.too_steep(x_below) or upper.too_steep(x_above):
        centres = np.arange(cells) + 0.5
        return x_at(centres / cells, (cells - centres) / cells)
    filled = np.empty(cells)
    lower.fill(filled, x_below)
    upper.fill(filled[::-1], x_above)
    return filled


class _Plan(NamedTuple):
    """Where to evaluate a function of the distance from an end, and how to fill in the rest."""

    cells: int
    knots: Floats
    steps: tuple[int, ...]  # from knot to knot, in each octave of distances
    begins: NDArray[np.intp]  # of the octaves, in the knots
    windows: tuple[NDArray[np.intp], ...]  # the knots about each interval, in each octave

    def too_steep(self, x: Floats) -> bool:
        """Whether log-odds run through all that matters in a few knots: no polynomial follows."""
        steps = np.abs(np.diff(x))
        steps[: min(_ENDS, self.cells)] = 0  # no polynomials there
        steps[self.begins - 1] = 0
        return bool(np.any((steps > 1) & (np.abs(x[1:]) < 20 + steps)))

    def fill(self, centres: Floats, values: Floats) -> None:
        """Fill in the centres of the cells, from the values at the knots; some more may follow."""
        ends = min(_ENDS, self.cells)
        centres[:ends] = values[:ends]
        start = _ENDS
        for step, windows in zip(self.steps, self.windows, strict=True):
            intervals = len(windows)
            octave = centres[start : start + intervals * step].reshape(intervals, step)
            # Not with @, whose threads would not survive a fork.
            np.einsum("ik,kj->ij", values[windows], _weights(step), out=octave)
            start *= 2


@functools.lru_cache(maxsize=8)
def _plan(cells: int) -> _Plan:
    """Plan for so many cells: the first ones, then 32 knots, and 7 more, for each octave."""
    knots, steps, start = [np.arange(min(_ENDS, cells)) + 0.5], [], _ENDS
    while start < cells:
        step = start // _ENDS
        knots.append(start + step * np.arange(-3.0, _intervals(cells, start, step) + 4))
        steps.append(step)
        start *= 2
    begins = np.cumsum([len(part) for part in knots[:-1]], dtype=np.intp)
    windows = tuple(
        begin + np.arange(part.size - 7)[:, None] + np.arange(8)
        for begin, part in zip(begins, knots[1:], strict=True)
    )
    return _Plan(cells, np.concatenate(knots), tuple(steps), begins, windows)


def _intervals(cells: int, start: int, step: int) -> int:
    return min(_ENDS, -(-(cells - start) // step))


@functools.cache
def _weights(step: int) -> Floats:
    """Return the weights of 8 neighbouring knots for the centres of the cells between two."""
    places = (np.arange(step) + 0.5) / step + 3
    knots = np.arange(8)
    weights = np.ones((8, step))
    for k in knots:
        for other in knots[knots != k]:
            weights[k] *= (places - other) / (k - other)
    return weights


# --- from quantiles to means ----------------------------------------------------------------------


def _means_from_centres(x: Floats, powers: Sequence[int], found: list[Floats]) -> NDArray[np.intp]:
    """Find the means of powers of p over all cells, from the log-odds at their centres.

    They are f + δ²f/24 − 17·δ⁴f/5760, with central differences δ; at both ends, only f. Return the
    cells after which there is a gap that is too wide for differences, where p is neither 0 nor 1.

    It works on one part at a time, and the means may overwrite x: with more or larger arrays, new
    memory would cost more than the arithmetic.
    """
    gaps, before = [], x[:0]
    for start in range(0, x.size, _PART):
        # Two cells more on either side: those before have made room for means.
        own, first = np.concatenate([before, x[start : start + _PART + 2]]), start - before.size
        before = x[start + _PART - 2 : start + _PART].copy()
        wide = np.flatnonzero(own[1:] - own[:-1] > _WIDE)
        gaps.append(first + wide[(own[wide + 1] > -_MATTERS) & (own[wide] < _MATTERS)])
        p = np.clip(own, -_FURTHEST, _FURTHEST, out=own)
        np.negative(p, out=p)
        np.exp(p, out=p)
        p += 1
        np.reciprocal(p, out=p)
        for power, means in zip(powers, found, strict=True):
            f = p if power == 1 else p * p
            means[start : start + _PART] = f[start - first : start - first + _PART]
            inner = means[first + 2 : first + f.size - 2]
            inner *= 1 - 2 / 24 - 6 * 17 / 5760
            for away, weight in ((1, 1 / 24 + 4 * 17 / 5760), (2, -17 / 5760)):
                both = f[2 - away : f.size - 2 - away] + f[2 + away : f.size - 2 + away]
                both *= weight
                inner += both
    return np.concatenate(gaps)


def _cells_apart(cells: int, gaps: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the cells at the ends, and those beside a gap."""
    apart = np.zeros(cells, bool)
    apart[:_ENDS] = apart[-_ENDS:] = True
    for beside in range(-1, 3):  # differences reach two cells away
        apart[np.clip(gaps + beside, 0, cells - 1)] = True
    return np.flatnonzero(apart)


def _means_one_by_one(
    x_at: LogOdds, a: float, b: float, power: int, which: NDArray[np.intp], cells: int
) -> Floats:
    if min(a, b) > NORMAL:
        points, weights = np.polynomial.legendre.leggauss(8)
        places = which[:, None] + (points + 1) / 2
        p = special.expit(x_at(places / cells, (cells - places) / cells))
        return np.asarray(np.sum(p**power * (weights / 2), axis=1))
    edges = np.stack([which, which + 1])
    x0, x1 = x_at(edges / cells, (cells - edges) / cells)
    # Up to p = ½ by the moments of p, beyond by those of w = 1 − p, each with all its digits:
    # p = 1 − w, p² = 1 − 2w + w². The probability of what lies beyond is that of a cell, except …
    p = _partial_moment(a, b, power, np.minimum(x0, 0), np.minimum(x1, 0))
    w0, w1 = -np.maximum(x1, 0), -np.maximum(x0, 0)
    w = [_partial_moment(b, a, k, w0, w1) for k in range(1, power + 1)]
    beyond = np.where(x0 >= 0, 1 / cells, 0)
    middle = (x0 < 0) & (x1 > 0)  # … in the one cell that has ½ in it
    beyond[middle] = special.betainc(b, a, 0.5) - (cells - which[middle] - 1) / cells
    return cells * (p + beyond - (w[0] if power == 1 else 2 * w[0] - w[1]))


def _moment(a: float, b: float, power: int) -> float:
    return a / (a + b) * ((a + 1) / (a + b + 1) if power == 2 else 1)


def _partial_moment(a: float, b: float, power: int, x0: Floats, x1: Floats) -> Floats:
    """Return E[pᵏ; x0 < log-odds of p ≤ x1], k = 1 or 2, for p ~ Beta(a, b)."""
    below = special.betainc(a + power, b, special.expit([x0, x1]))
    return np.asarray(_moment(a, b, power) * (below[1] - below[0]))
