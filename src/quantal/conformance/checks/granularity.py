"""Checks of what units share: whole coefficients, or retain probabilities alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quantal.conformance.adapter import Settings
from quantal.conformance.bounds import Mean, Proportion
from quantal.conformance.check import Finding, Trial, exact, statistical
from quantal.conformance.checks import laws
from quantal.conformance.checks.cases import SMALL
from quantal.conformance.checks.independence import correlation, correlation_test, halves
from quantal.conformance.checks.laws import CELL, LAWS
from quantal.dilution import Dilution

Floats = NDArray[np.float64]
Axes = tuple[int, ...]

LAW = LAWS[0]
VARY_P = Dilution(LAW.rate, LAW.alpha, vary="p")
VARY_Q = Dilution(LAW.rate, LAW.alpha, vary="q")
SHARED = ((), (1,), (-1,), (1, 2), (0, 1, 2))
P_SHARED: tuple[tuple[Axes, Axes], ...] = (((), (0,)), ((), (-1,)), ((), (1, 2)), ((2,), (0,)))
COARSE = 0.04  # groups are fewer than units, and their faults are the same as those of units
GROUPS = (4, 4096)  # four units a group, along the first axis


def _first(c: Floats, axes: Axes) -> Floats:
    """Return one coefficient of each group that shares it."""
    for axis in axes:
        c = np.take(c, [0], axis=axis)
    return c


@exact("broadcast-dims", fault="any difference within a group, none between groups")
def broadcast_dims(trial: Trial) -> Iterator[Finding]:
    """Coefficients are equal along broadcast_dims, and along no other axis."""
    for number, axes in enumerate(SHARED):
        (seed,) = trial.subject.seeds("broadcast-dims", 1, start=number)
        c = trial.subject.draw(Settings.of(LAW, broadcast_dims=axes), seed, SMALL)
        what = f"broadcast_dims={axes}"
        own = _first(c, axes)
        yield trial.require(f"{what}: equal", bool(np.all(c == own)), "units of a group differ")
        if own.size == 1:
            continue
        # By chance alone, groups would all be equal along an axis less than once in 10¹⁵ calls.
        for axis in np.flatnonzero(np.array(own.shape) > 1):
            constant = bool(np.all(own == np.take(own, [0], axis=axis)))
            detail = f"coefficients do not vary along axis {axis}"
            yield trial.require(f"{what}: axis {axis} varies", not constant, detail)


@statistical("broadcast-law", fault="a rate off by 4%, a correlation of 4%", parts=3)
def broadcast_law(trial: Trial) -> Iterator[Finding]:
    """Shared coefficients follow the law, and groups are independent."""
    pairs = correlation_test(LAW).samples(COARSE, trial.level)
    drop = laws.drop_test(LAW)
    needed = max(2 * pairs, drop.samples(COARSE * LAW.rate, trial.level))
    c = _first(_groups(trial, LAW, needed, broadcast_dims=(0,)), (1,))
    dropped = int(np.count_nonzero(c == 0))
    stated = COARSE * LAW.rate
    yield trial.judge("P(c = 0) of groups", drop, dropped, c.size, stated=stated)
    for lag in (1, 64):
        what = f"correlation of groups {lag} apart"
        yield correlation(trial, what, *halves(c, 2, lag), stated=COARSE)


# --- shared retain probabilities -----------------------------------------------------------------


def _groups(trial: Trial, law: Dilution, groups: int, **granularity: Axes) -> Floats:
    """Return draws (calls, *GROUPS) of at least so many groups."""
    settings = Settings.of(law, **granularity)
    calls = -(-groups // int(np.prod(GROUPS[1:])))
    seeds = trial.subject.seeds(repr(settings), calls)
    return np.stack([trial.subject.draw(settings, seed, GROUPS) for seed in seeds])


@exact("p-granularity", fault="any difference of kept values within a group")
def p_granularity(trial: Trial) -> Iterator[Finding]:
    """Kept values are equal along p_broadcast_dims, masks and other groups are not."""
    for law, cases in ((LAW, P_SHARED), (VARY_Q, P_SHARED[:1])):
        for number, (whole, shared) in enumerate(cases):
            (seed,) = trial.subject.seeds(f"p-granularity {law}", 1, start=number)
            settings = Settings.of(law, broadcast_dims=whole, p_broadcast_dims=shared)
            c = trial.subject.draw(settings, seed, SMALL)
            what = f"vary={law.vary!r}, broadcast_dims={whole}, p_broadcast_dims={shared}"
            same = bool(np.all(c == _first(c, whole)))
            yield trial.require(f"{what}: equal", same, "units of broadcast_dims differ")
            c = _first(c, whole)
            size = np.max(c, axis=shared, keepdims=True)
            alike = bool(np.all((c == 0) | (c == size)))
            yield trial.require(f"{what}: sizes", alike, "kept values of a group differ")
            # Masks are all alike, or groups all of one size, less than once in 10¹⁵ calls.
            varied = bool(np.any((c == 0) != _first(c == 0, shared)))
            yield trial.require(f"{what}: masks", varied, "masks are shared too")
            for axis in np.flatnonzero(np.array(size.shape) > 1):
                constant = bool(np.all(size == np.take(size, [0], axis=axis)))
                detail = f"sizes do not vary along axis {axis}, which shares nothing"
                yield trial.require(f"{what}: axis {axis}", not constant, detail)


@statistical(
    "p-granularity-masks", fault="P(both kept) off by 0.01, P(kept given p) by 0.02", parts=5
)
def p_granularity_masks(trial: Trial) -> Iterator[Finding]:
    """Masks of a group are independent given p, and are kept with that p."""
    both_kept = {"pq": _mean_square(LAW), "p": _mean_square(VARY_P), "q": LAW.retain**2}
    given = Mean(0.0, 0.25, -1.0, 1.0, slack=2.0**-14)  # m − p, with p read off the size
    # A kept unit has p < ½ in a quarter of the cases, and three more in its group.
    enough = int(given.samples(0.02, trial.level) / (0.5 * 0.25 * 3) * 1.1)
    for law in (LAW, VARY_P, VARY_Q):
        test = Proportion(both_kept[law.vary], slack=2 * CELL)
        groups = test.samples(0.01, trial.level)
        groups = max(groups, enough) if law is LAW else groups
        c = np.moveaxis(_groups(trial, law, groups, p_broadcast_dims=(0,)), 1, 0)
        kept = (c > 0).reshape(GROUPS[0], -1)
        count = int(np.count_nonzero(kept[0] & kept[1]))
        what = f"both of two units kept, vary={law.vary!r}"
        yield trial.judge(what, test, count, kept.shape[1], stated=0.01)
        if law is not LAW:
            continue
        # The first unit shows p if it is kept; the other masks must go by it.
        p = (c[0].reshape(-1) * LAW.retain**2)[kept[0]]
        off = kept[1:, kept[0]] - p
        for what, some in (("p < ½", p < 0.5), ("p ≥ ½", p >= 0.5)):
            chosen = off[:, some]
            mean = float(np.mean(chosen)) if chosen.size else 0.0
            yield trial.judge(f"P(kept) − p where {what}", given, mean, chosen.size, stated=0.02)


def _mean_square(law: Dilution) -> float:
    """Return E[p²] for p ~ Beta(α, β)."""
    a, b = law.alpha, law.beta
    return a / (a + b) * (a + 1) / (a + b + 1)


@statistical(
    "p-granularity-law", fault="a rate off by 4%, an α off by 10%, a correlation of 4%", parts=8
)
def p_granularity_law(trial: Trial) -> Iterator[Finding]:
    """With shared p, each single coefficient follows the law, and groups are independent."""
    for law in (LAW, VARY_Q):
        pairs = correlation_test(law).samples(COARSE, trial.level)
        drop, size = laws.drop_test(law), laws.size_test(law)
        kept_needed = size.samples(laws.alpha_fault(law, 0.1), trial.level)
        needed = max(2 * pairs, drop.samples(COARSE * law.rate, trial.level))
        needed = max(needed, int(kept_needed / law.retain * 1.05))
        c = _groups(trial, law, needed, p_broadcast_dims=(0,))[:, 0]
        what = f"vary={law.vary!r}"
        dropped = int(np.count_nonzero(c == 0))
        stated = COARSE * law.rate
        yield trial.judge(f"P(c = 0), {what}", drop, dropped, c.size, stated=stated)
        kept = c[c > 0]
        distance = laws.kept_distance(law, kept) if kept.size else 1.0
        stated = laws.alpha_fault(law, 0.1)
        yield trial.judge(f"kept c, {what}", size, distance, kept.size, stated=stated)
        for lag in (1, 64):
            about = f"correlation of groups {lag} apart, {what}"
            yield correlation(trial, about, *halves(c, 1, lag), law=law, stated=COARSE)
