"""The quantiles of the beta distribution, fast, and where SciPy's are wrong, too.

All is done in log-odds x = log(p/(1−p)), in which neither end of the scale loses digits: at small β
most of the mass lies closer to p = 1 than 2⁻⁵³.

The distribution function F is evaluated forwards at some 350 nodes, where t = log(F/(1−F)) is a
smooth function of x, and x(t) is interpolated by the quintic that has the exact slope and curvature
at each node. (SciPy's inverse is slow, and wrong where b is a million times a.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["NORMAL", "Floats", "LogOdds", "log_beta", "log_odds", "quantile"]

Floats = NDArray[np.float64]
LogOdds = Callable[[Floats, Floats], Floats]

NORMAL = 1e5  # of both a and b: above it, Beta(a, b) is expanded about the normal distribution
_FAR = 100.0  # log-odds beyond which p, or 1 − p, is below 1e-43 and the tails are pure powers
_FAINT = -60.0  # logarithm of a tail that no quantile will be asked for


def quantile(a: float, b: float, u: Floats, v: Floats) -> Floats:
    """Return the quantile of Beta(a, b) at u to all digits, given u and v = 1 − u.

    Examples
    --------
    >>> quantile(2.0, 1.0, np.array([0.25, 1.0]), np.array([0.75, 0.0]))
    array([0.5, 1. ])
    """
    x = log_odds(a, b)(u, v)
    x = np.where(u > 0, np.where(v > 0, x, np.inf), -np.inf)
    # One step of Newton's method, where F can tell better than the interpolation.
    told = np.abs(x) < _FAR if min(a, b) < 1e9 else np.zeros(x.shape, bool)
    log_below, log_above, log_density = _logarithms(a, b, x[told])
    error = (log_below - log_above) - (np.log(u[told]) - np.log(v[told]))
    slope = np.exp(np.minimum(log_below + log_above - log_density, 99))
    x[told] -= np.clip(error * slope, -0.01, 0.01)
    return np.asarray(special.expit(x))


@functools.lru_cache(maxsize=16)  # both rows of a table need the same function
def log_odds(a: float, b: float) -> LogOdds:
    """Return the function that gives the log-odds of the quantile at u, given u and v = 1 − u."""
    return _normal_log_odds(a, b) if min(a, b) > NORMAL else _exact_log_odds(a, b)


def _nodes(a: float, b: float) -> Floats:
    """Return log-odds that span the distribution, close together where it has features."""
    mean = special.digamma(a) - special.digamma(b)
    std = (special.zeta(2, a) + special.zeta(2, b)) ** 0.5
    # The tails are those of the normal distribution or, at worst, exponential …
    low = max(min(mean - 17 * std, _FAR - 1), -_FAR)
    high = min(max(mean + 17 * std, 1 - _FAR), _FAR)
    # … so that on one side or the other they may be too faint to matter long before.
    rough = np.linspace(low, high, 64)
    log_below, log_above, _ = _logarithms(a, b, rough)
    inside = np.flatnonzero(np.minimum(log_below, log_above) > _FAINT)
    if inside.size:
        low, high = rough[max(inside[0] - 1, 0)], rough[min(inside[-1] + 1, 63)]
    straight = np.clip(_straight(a, b, 20), low, high)
    parts = (
        np.linspace(low, straight[0], 48, endpoint=False),
        np.linspace(straight[0], straight[1], 256, endpoint=False),
        np.linspace(straight[1], high, 49),
    )
    return np.unique(np.concatenate(parts))


def _exact_log_odds(a: float, b: float) -> LogOdds:
    nodes = _nodes(a, b)
    log_below, log_above, log_density = _logarithms(a, b, nodes)
    ts = np.maximum.accumulate(log_below - log_above)
    # Slope and curvature of x(t), in logarithms since each factor can underflow.
    slopes, rise, fall = (
        np.exp(np.minimum(power, 99))  # more only where no quantile will be asked for
        for power in (
            log_below + log_above - log_density,
            log_density - log_below,
            log_density - log_above,
        )
    )
    p, w = special.expit(nodes), special.expit(-nodes)
    curvatures = -slopes * slopes * (a * w - b * p - rise + fall)
    polynomials = _quintics(ts, nodes, slopes, curvatures)

    def log_odds(u: Floats, v: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            log_u, log_v = np.log(u), np.log(v)
        t = log_u - log_v
        i = np.clip(np.searchsorted(ts, t) - 1, 0, len(nodes) - 2)
        low, high = nodes[i], nodes[i + 1]
        width = ts[i + 1] - ts[i]
        # A width of 0 is possible where b is so small that hardly any mass lies between nodes.
        s = np.clip(np.divide(t - ts[i], width, out=np.zeros_like(t), where=width > 0), 0, 1)
        x = np.zeros_like(s)
        for coefficients in polynomials:
            x = x * s + coefficients[i]
        x = np.clip(x, low, high)
        # Beyond the nodes F is a power of p, or 1 − F one of 1 − p.
        before = np.minimum(log_u - log_below[0], 0) / a
        after = np.minimum(log_v - log_above[-1], 0) / b
        return np.asarray(x + before - after)

    return log_odds


def _straight(a: float, b: float, far: float) -> tuple[float, float]:
    """Return the log-odds beyond which F is a pure power of p, or 1 − F one of 1 − p, to e⁻ᶠᵃʳ."""
    return -math.log(max(b, 1)) - far, math.log(max(a, 1)) + far


def _logarithms(a: float, b: float, x: Floats) -> tuple[Floats, Floats, Floats]:
    """Return log F, log(1 − F) and the log of the density at log-odds x."""
    log_p, log_w = -np.logaddexp(0, -x), -np.logaddexp(0, x)
    log_b = log_beta(a, b)
    low, high = _straight(a, b, 36)
    log_below, log_above = np.empty_like(x), np.empty_like(x)
    first, last = x < low, x > high
    log_below[first] = a * log_p[first] - (log_b + math.log(a))
    log_above[first] = _log_complement(log_below[first])
    log_above[last] = b * log_w[last] - (log_b + math.log(b))
    log_below[last] = _log_complement(log_above[last])
    # In between by p where p is small, else by 1 − p.
    middle = ~(first | last)
    by_p, by_w = middle & (x < 0), middle & (x >= 0)
    log_below[by_p], log_above[by_p] = _log_tails(a, b, np.exp(log_p[by_p]))
    log_above[by_w], log_below[by_w] = _log_tails(b, a, np.exp(log_w[by_w]))
    return log_below, log_above, a * log_p + b * log_w - log_b


def log_beta(a: float, b: float) -> float:
    """Return the logarithm of the beta function, also where SciPy's has lost its digits.

    That is where one number is far above the other: differences of log Γ, by Stirling's series.

    Examples
    --------
    >>> round(log_beta(2.0, 3.0) + math.log(12), 12), log_beta(1e5, 1e11)
    (0.0, -1481555.943319277)
    """
    small, large = min(a, b), max(a, b)
    if large < 20:
        return float(special.betaln(a, b))
    total = a + b
    rest = _stirling_rest(large) - _stirling_rest(total)
    ratio = small - small * math.log(large) - (total - 0.5) * math.log1p(small / large) + rest
    return float(special.gammaln(small)) + ratio


def _stirling_rest(z: float) -> float:
    return (1 / 12 - (1 / 360 - 1 / (1260 * z * z)) / (z * z)) / z


def _log_complement(log_f: Floats) -> Floats:
    return np.log(-np.expm1(np.minimum(log_f, -np.finfo(float).tiny)))


def _log_tails(a: float, b: float, p: Floats) -> tuple[Floats, Floats]:
    """Return the logarithms of both tails; the upper one by itself where 1 − F loses digits."""
    below = special.betainc(a, b, p)
    above = 1 - below
    most = below > 0.99  # not as soon as it could be: where b is small, betaincc is slow
    above[most] = special.betaincc(a, b, p[most])
    tiny = np.finfo(float).tiny
    return np.log(np.maximum(below, tiny)), np.log(np.maximum(above, tiny))


def _quintics(ts: Floats, xs: Floats, slopes: Floats, curvatures: Floats) -> list[Floats]:
    """Return the coefficients, highest first, of Hermite's quintics between nodes, in 0 ≤ s ≤ 1."""
    width, rise = np.diff(ts), np.diff(xs)
    left, right = slopes[:-1] * width, slopes[1:] * width
    bend_left, bend_right = curvatures[:-1] * width**2, curvatures[1:] * width**2
    return [
        6 * rise - 3 * (left + right) - (bend_left - bend_right) / 2,
        -15 * rise + 8 * left + 7 * right + 1.5 * bend_left - bend_right,
        10 * rise - 6 * left - 4 * right - 1.5 * bend_left + bend_right / 2,
        bend_left / 2,
        left,
        xs[:-1],
    ]


def _normal_log_odds(a: float, b: float) -> LogOdds:
    """Expand the quantile about the normal one (Cornish-Fisher): for large a and b.

    Incomplete beta functions lose digits there, while the error of the expansion falls with
    min(a, b)⁻¹·⁵: it is below 1e-6 standard deviations where it is used.
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
