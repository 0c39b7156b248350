"""The beta distribution cut into cells of equal probability: the mean of p over each of them.

Quantiles are needed at some 10⁵ points, and inverting the incomplete beta function at each takes a
tenth of a second. Instead it is evaluated forwards on a grid of log-odds x = log(p/(1−p)), where
t = log(F/(1−F)) is a smooth function of x, and x(t) is interpolated by the cubic that has the exact
slope at each node. Both p and 1 − p are kept: at small β most of the mass lies closer to p = 1 than
2⁻⁵³, and edges computed as p would all be 1.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

__all__ = ["Floats", "mean_of_cells"]

Floats = NDArray[np.float64]

_NODES = 2048  # of the interpolation: its error is then far below a float32's
_WIDE = 0.01  # log-odds that a cell may span before quadrature gives way to exact moments
_NORMAL = 1e5  # of both a and b: above it, Beta(a, b) is expanded about the normal distribution
_FAR = 60.0  # log-odds beyond which p or 1 − p is below 1e-26 and the tails are pure powers


def mean_of_cells(a: float, b: float, cells: int, power: int = 1) -> Floats:
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


@functools.lru_cache(maxsize=4)  # both rows of a table, or both powers, need the same function
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
    # With hardly any mass on one side, that side can come out as 0.
    log_below, log_above = (np.log(np.maximum(f, np.finfo(float).tiny)) for f in (below, above))
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
