"""The law as tables of 2¹⁶ equally likely values, so that a draw is 16 random bits and a look-up.

Each cell of a table holds the mean of the law over its share of the probability, so E[c] is exact,
and no value is off by more than one cell: the Kolmogorov distance to the exact law is of the order
of 2⁻¹⁶. A table can drop a unit with a probability of k/2¹⁶ only, so there are two, with the
neighbouring numbers of zero cells, and each call picks one of them at random in the proportion
that makes P(c = 0) equal to the rate.

Where only the retain probability is shared (``p_broadcast_dims``), the masks are drawn one by one:
a second kind of table then gives, for 16 bits, a threshold for 30-bit numbers and a size.

How a table is computed. Quantiles are needed at some 10⁵ points, and inverting the incomplete beta
function at each takes a tenth of a second. Instead it is evaluated forwards on a grid of log-odds
x = log(p/(1−p)), where t = log(F/(1−F)) is a smooth function of x, and x(t) is interpolated by the
cubic that has the exact slope at each node. Both p and 1 − p are kept: at small
β most of the mass lies closer to p = 1 than 2⁻⁵³, and edges computed as p would all be 1.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from quantal.dilution import Dilution

__all__ = ["CELLS", "LEVELS", "SharedTable", "Table", "shared_table", "table"]

CELLS = 2**16
"""The number of cells of a table."""

LEVELS = 2**30
"""Thresholds are compared with integers drawn uniformly from range(LEVELS), which fit an int32."""

_NODES = 2048  # of the interpolation: its error is then far below a float32's
_WIDE = 0.01  # log-odds that a cell may span before quadrature gives way to exact moments
_NORMAL = 1e5  # of both a and b: above it, Beta(a, b) is expanded about the normal distribution
_FAR = 60.0  # log-odds beyond which p or 1 − p is below 1e-26 and the tails are pure powers

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """A law, ready to be drawn from.

    Attributes
    ----------
    values : numpy.ndarray
        Two rows of 2¹⁶ coefficients in ascending order, float32, read-only.
    threshold : int
        The second row, which has one zero more, is the one to use in a call whose own random
        integer out of ``range(LEVELS)`` is below this.
    """

    values: NDArray[np.float32]
    threshold: int


@dataclass(frozen=True, eq=False)
class SharedTable:
    """A law for masks that share a retain probability.

    Attributes
    ----------
    keep_below : numpy.ndarray
        For each of 2¹⁶ equally likely probabilities, the threshold below which a random integer
        out of ``range(LEVELS)`` keeps its unit, int32, read-only.
    values : numpy.ndarray
        The coefficient of the units that are kept, float32, read-only.
    """

    keep_below: NDArray[np.int32]
    values: NDArray[np.float32]


_Made = TypeVar("_Made")
_Scalar = TypeVar("_Scalar", bound=np.generic)


def _once(make: Callable[[Dilution], _Made]) -> Callable[[Dilution], _Made]:
    """Cache by dilution, and let threads that ask for the same table wait for one of them."""
    cached = functools.lru_cache(maxsize=256)(make)
    lock = threading.Lock()

    @functools.wraps(make)
    def made(dilution: Dilution) -> _Made:
        with lock:
            return cached(dilution)

    return made


@_once
def table(dilution: Dilution) -> Table:
    """Return the table of a dilution; it is computed once.

    Examples
    --------
    >>> drawn = table(Dilution(0.5, 1.0))
    >>> drawn.values[0, [0, 32767, 32768, 65535]]
    array([0.        , 0.        , 0.01473139, 3.9999695 ], dtype=float32)
    """
    rows, share = cell_means(dilution)
    return Table(_float32(rows), round(share * LEVELS))


@_once
def shared_table(dilution: Dilution) -> SharedTable:
    """Return the table of a dilution whose retain probabilities are shared; it is computed once."""
    p, p_squared = _probability_cells(dilution)
    keep = np.full(CELLS, dilution.retain) if dilution.vary == "q" else p
    if dilution._spread is None:
        values = np.full(CELLS, dilution.ceiling)
    elif dilution.vary == "q":
        values = p * dilution.ceiling
    else:
        # The mean of the kept sizes in a cell is biased to the larger p, as in the exact law.
        values = p_squared / np.maximum(p, np.finfo(float).tiny) * dilution.ceiling
    return SharedTable(_read_only(_whole(keep * LEVELS).astype(np.int32)), _float32(values))


def cell_means(dilution: Dilution) -> tuple[Floats, float]:
    """Return the two rows of a table in float64 and the probability of using the second."""
    zeros, share = divmod(dilution.rate * CELLS, 1)
    rows = np.zeros((2, CELLS))
    for row, dropped in zip(rows, (int(zeros), int(zeros) + 1), strict=True):
        kept = CELLS - dropped
        if kept <= 0:
            continue
        if dilution._spread is None:
            row[dropped:] = dilution.ceiling
        else:
            means = _cell_means(*dilution._spread, kept)
            row[dropped:] = dilution.ceiling * np.maximum(means, np.finfo(float).tiny)
    return rows, share


def _probability_cells(dilution: Dilution) -> tuple[Floats, Floats]:
    """Return the means of p and p² over 2¹⁶ equal shares of Beta(α, β)."""
    beta = Dilution(dilution.rate, dilution.alpha, vary="q")._spread
    if beta is None:
        p = np.full(CELLS, dilution.retain)
        return p, p**2
    return _cell_means(*beta, CELLS), _cell_means(*beta, CELLS, power=2)


def _whole(numbers: Floats) -> Floats:
    """Round to integers so that the total is kept: no cell is off by 1, the sum by at most ½."""
    below = np.floor(numbers)
    missing = round(float(np.sum(numbers - below)))
    # The largest fractions are rounded up; where they tie, the last, which keeps the order.
    up = np.argsort(numbers - below, kind="stable")[CELLS - missing :]
    below[up] += 1
    return below


def _float32(values: Floats) -> NDArray[np.float32]:
    # A kept unit must not look dropped: what a normal float32 cannot hold becomes the smallest.
    # (Subnormal numbers would also be slow, and flushed to zero by some devices.)
    smallest = np.finfo(np.float32).tiny
    return _read_only(np.where(values > 0, np.maximum(values, smallest), 0).astype(np.float32))


def _read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    array.setflags(write=False)
    return array


# --- quantiles of the beta distribution, fast for many arguments ---------------------------------


def _cell_means(a: float, b: float, cells: int, power: int = 1) -> Floats:
    """Return E[pᵏ], k = 1 or 2, over ``cells`` equal shares of the probability of Beta(a, b)."""
    log_odds = _normal_log_odds(a, b) if min(a, b) > _NORMAL else _exact_log_odds(a, b)
    # Two-point Gauss-Legendre quadrature where the quantile function changes little in a cell …
    points = np.arange(cells) + 0.5 + np.array([[-0.5], [0.5]]) / 3**0.5
    x = log_odds(points / cells, (cells - points) / cells)
    means: Floats = np.mean(special.expit(x) ** power, axis=0)
    # … and exact partial moments elsewhere; those of 1 − p where p is close to 1.
    edges = np.arange(cells + 1)
    x = log_odds(edges / cells, (cells - edges) / cells)
    wide = np.flatnonzero(np.diff(x) > _WIDE)
    low, high = wide[x[wide] <= 0], wide[x[wide] > 0]
    means[low] = cells * _partial_moment(a, b, power, x[low], x[low + 1])
    means[high] = 1 - power * cells * _partial_moment(b, a, 1, -x[high + 1], -x[high])
    if power == 2:
        means[high] += cells * _partial_moment(b, a, 2, -x[high + 1], -x[high])
    # What rounding has left of the total goes to the cells where p is neither 0 nor 1.
    room = special.expit(x[1:]) * special.expit(-x[:-1])
    short = cells * _partial_moment(a, b, power, -np.inf, np.inf) - np.sum(means)
    means += short * room / max(np.sum(room), np.finfo(float).tiny)
    return np.maximum.accumulate(np.clip(means, 0, 1))


def _partial_moment(a: float, b: float, power: int, x0: ArrayLike, x1: ArrayLike) -> Floats:
    """Return E[Pᵏ; x0 < log-odds of P ≤ x1], k = 1 or 2, for P ~ Beta(a, b)."""
    moment = a / (a + b) * ((a + 1) / (a + b + 1) if power == 2 else 1)
    below = special.betainc(a + power, b, special.expit([x0, x1]))
    return np.asarray(moment * (below[1] - below[0]))


def _exact_log_odds(a: float, b: float) -> Callable[[Floats, Floats], Floats]:
    """Interpolate the log-odds of the quantile at u, given u and 1 − u."""
    tiny = 2.0**-20
    low = min(special.logit(special.betaincinv(a, b, tiny)), _FAR - 1)
    high = max(-special.logit(special.betaincinv(b, a, tiny)), 1 - _FAR)
    nodes = np.linspace(max(low, -_FAR), min(high, _FAR), _NODES)
    p, w = special.expit(nodes), special.expit(-nodes)
    below, above = special.betainc(a, b, p), special.betainc(b, a, w)
    # Far out, p (or w) is 1 but for its last digits, and only the other side can be trusted.
    below, above = np.where(nodes > 10, 1 - above, below), np.where(nodes < -10, 1 - below, above)
    log_below, log_above = np.log(below), np.log(above)
    ts = log_below - log_above
    # dx/dt = F(1−F)/(p(1−p)·density), in logarithms since each factor can underflow.
    slopes = np.exp(log_below + log_above + special.betaln(a, b) - a * np.log(p) - b * np.log(w))

    def log_odds(u: Floats, v: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            log_u, log_v = np.log(u), np.log(v)
        t = log_u - log_v
        i = np.clip(np.searchsorted(ts, t) - 1, 0, _NODES - 2)
        width, rise = (ts[1:] - ts[:-1])[i], (nodes[1:] - nodes[:-1])[i]
        # A width of 0 is possible where b is so small that hardly any mass lies between nodes.
        s = np.clip(np.divide(t - ts[i], width, out=np.zeros_like(t), where=width > 0), 0, 1)
        left, right = slopes[i] * width - rise, slopes[i + 1] * width - rise
        cubic = nodes[i] + s * rise + s * (1 - s) * ((1 - s) * left - s * right)
        # Beyond the nodes F is a power of p, or 1 − F one of 1 − p.
        before = np.minimum(log_u - log_below[0], 0) / a
        after = np.minimum(log_v - log_above[-1], 0) / b
        return np.asarray(cubic + before - after)

    return log_odds


def _normal_log_odds(a: float, b: float) -> Callable[[Floats, Floats], Floats]:
    """Expand the quantile about the normal one (Cornish-Fisher): for large a and b.

    Incomplete beta functions lose digits there, while the error of the expansion falls with
    min(a, b)⁻¹·⁵: it is below 1e-7 standard deviations where it is used.
    """
    total = a + b
    mean_p, mean_w = a / total, b / total
    std = (mean_p * mean_w / (total + 1)) ** 0.5
    skew = 2 * (mean_w - mean_p) * (total + 1) ** 0.5 / (total + 2) / (mean_p * mean_w) ** 0.5
    squared = (mean_w - mean_p) ** 2 * (total + 1) / (mean_p * mean_w) - (total + 2)
    kurtosis = 6 * squared / (total + 2) / (total + 3)

    def log_odds(u: Floats, v: Floats) -> Floats:
        z = np.clip(np.where(u < v, special.ndtri(u), -special.ndtri(v)), -9, 9)
        z = z + (z**2 - 1) * skew / 6 + (z**3 - 3 * z) * kurtosis / 24
        z = z - (2 * z**3 - 5 * z) * skew**2 / 36
        return np.asarray(np.log(mean_p + std * z) - np.log(mean_w - std * z))

    return log_odds
