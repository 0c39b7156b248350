"""Checks of the limits: test time, rates 0 and 1, extreme α; and that dtypes are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Array, Settings
from quantal.conformance._bounds import Proportion
from quantal.conformance._cases import (
    DENSE,
    INF,
    SHAPES,
    SMALL,
    Case,
    at_every_law,
    digits,
    numbers,
    rng_of,
    seed_of,
)
from quantal.conformance._finding import Finding
from quantal.conformance._precision import smallest, tolerance, wide
from quantal.conformance._questions import COARSE, OneLaw
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._shapes import BATCH
from quantal.conformance._subject import Subject

CALLS = 3
LARGE = 1e3  # α from which on sizes can be told from those of another α, not only from dropout's

OFF: tuple[Settings, ...] = (
    Settings(0.5, 1.0),
    Settings(0.2, 0.2),
    Settings(0.9, 1e-3),
    Settings(0.3, INF),
    Settings(0.5, 1.0, vary="p"),
    Settings(0.5, 1.0, vary="q"),
    Settings(0.5, 1.0, unit_mean=True),
    Settings(0.5, 1.0, broadcast_dims=(-1,)),
    Settings(0.5, 1.0, p_broadcast_dims=(0,)),
)
"""Settings of each kind, which a limit overrules."""


def _arrays(trial: Trial, case: Case, x: Array, upstream: Array, label: str) -> dict[str, Array]:
    """Return what comes out of one call, with and without a gradient, and of a layer's calls.

    ``x`` and ``upstream`` are given as copies, and are among what is returned.
    """
    subject, seed = trial.subject, seed_of(trial.subject, case, label)
    x, upstream = x.copy(), upstream.copy()
    found = {"output": subject.apply(x, case.settings, seed)}
    if not subject.lacks("grad"):
        output, gradient = subject.grad(x, upstream, case.settings, seed)
        found |= {"output with gradient": output, "gradient": gradient}
    if case.shape in (SMALL, DENSE) and not subject.lacks("calls"):
        outputs = subject.calls(x, case.settings, seed, CALLS)
        found |= {f"output of call {call}": output for call, output in enumerate(outputs)}
    # Copies again: out of training an implementation may return its input.
    return {**{what: array.copy() for what, array in found.items()}, "x": x, "upstream": upstream}


def _tried(subject: Subject, settings: Settings) -> Iterator[Case]:
    """Yield calls with some settings in each dtype, and without sharing in each shape."""
    for dtype in subject.dtypes:
        yield Case(SMALL, settings, dtype)
    if not settings.broadcast_dims + settings.p_broadcast_dims:
        for shape in SHAPES:
            yield Case(shape, settings, subject.dtype)


def _identity(trial: Trial, label: str, case: Case) -> Iterator[Finding]:
    rng = rng_of(trial.subject, case, label)
    x, upstream = digits(rng, case), digits(rng, case)
    with np.errstate(invalid="ignore"):  # what draws after all may meet 0·inf
        found = _arrays(trial, case, x, upstream, label)
    for what, array in found.items():
        expected = upstream if what in ("gradient", "upstream") else x
        same = np.array_equal(wide(array), wide(expected), equal_nan=True)
        detail = f"the {what} is not what went in"
        yield trial.require(f"{what}, {case}", same, detail, x.size)


@exact("eval-identity")
def eval_identity(trial: Trial) -> Iterator[Finding]:
    """Out of training the output is the input, at every rate and α."""
    for rate in (None, 1.0):
        for settings in OFF:
            limit = replace(settings, training=False, rate=settings.rate if rate is None else rate)
            for case in _tried(trial.subject, limit):
                yield from _identity(trial, "eval-identity", case)
    for case in at_every_law(trial.subject):
        resting = replace(case, settings=replace(case.settings, training=False))
        yield from _identity(trial, "eval-identity", resting)


@exact("rate-zero-identity")
def rate_zero_identity(trial: Trial) -> Iterator[Finding]:
    """At rate 0 the output is the input."""
    for settings in OFF:
        for case in _tried(trial.subject, replace(settings, rate=0.0)):
            yield from _identity(trial, "rate-zero-identity", case)


@exact("rate-one-zeros", fault="anything but 0, in the output or its gradient")
def rate_one_zeros(trial: Trial) -> Iterator[Finding]:
    """At rate 1 the output is 0, and so is its gradient."""
    for settings in OFF:
        for case in _tried(trial.subject, replace(settings, rate=1.0)):
            x = numbers(rng_of(trial.subject, case, "rate-one"), case)
            found = _arrays(trial, case, x, np.ones_like(x), "rate-one")
            same = bool(np.all(found.pop("x") == x) and np.all(found.pop("upstream") == 1))
            yield trial.require(f"inputs, {case}", same, "an input was overwritten", x.size)
            for what, array in found.items():
                zero = bool(np.all(array == 0))
                yield trial.require(f"{what}, {case}", zero, f"the {what} is not all 0", x.size)


@exact("dtype-kept")
def dtype_kept(trial: Trial) -> Iterator[Finding]:
    """Output and gradient have the dtype of the input."""
    subject = trial.subject
    settings = (
        Settings(0.5, 1e-3),
        Settings(0.5, 1.0, training=False),
        Settings(0.0, 1.0),
        Settings(1.0, 1.0),
        Settings(0.5, 1.0, p_broadcast_dims=(0,)),
        Settings(0.5, 1.0, broadcast_dims=(1,)),
    )
    for dtype in subject.dtypes:
        for one in settings[:4] if trial.quick else settings:
            for shape in (DENSE,) if trial.quick else (SMALL, DENSE):
                case = Case(shape, one, dtype)
                x = numbers(rng_of(subject, case, "dtype-kept"), case)
                for what, array in _arrays(trial, case, x, x, "dtype-kept").items():
                    detail = f"the {what} is {array.dtype}"
                    yield trial.require(f"{what}, {case}", array.dtype == dtype, detail)


def _finite_everywhere(trial: Trial) -> Iterator[Finding]:
    """Ask whether every number is finite, in all dtypes and at the ends of all ranges."""
    extremes = (
        Settings(0.5, 1e-3),
        Settings(0.5, 1e-3, vary="q"),
        Settings(0.9, 1e6),
        Settings(0.5, 1e-3, p_broadcast_dims=(0,)),
    )
    subject = trial.subject
    for dtype in subject.dtypes:
        for settings in extremes[:3] if trial.quick else extremes:
            case = Case(DENSE, settings, dtype)
            x = np.ones(case.shape, dtype)
            for what, array in _arrays(trial, case, x, x, "finite").items():
                finite = bool(np.isfinite(array.astype(np.float64)).all())
                yield trial.require(f"finite {what}, {case}", finite, f"the {what} is not finite")


def _smaller_ones(one: OneLaw) -> Finding:
    """Ask how many kept coefficients are clearly below the ceiling, where almost none are."""
    bound, blur = 0.9 * one.law.ceiling, tolerance(one.exactness)
    ends = np.asarray([bound * (1 - blur), bound * (1 + blur)])
    fewest, most = laws.kept_cdf(one.law, ends)
    share = float(fewest + most) / 2
    slack = 2 * laws.CELL / one.law.retain + float(most - fewest) / 2
    # What half precision makes 0 of is not among the kept.
    slack += float(laws.kept_cdf(one.law, np.asarray(smallest(one.exactness))))
    test = Proportion(share, slack=slack)
    n = test.samples(share, one.trial.significance)
    kept = one.kept(n)
    below = int(np.count_nonzero(kept < bound))
    what = f"P(kept c < {bound:.4g}), {one}"
    return one.trial.judge(what, test, below, len(kept), stated=share)


@statistical(
    "extreme-alpha",
    fault="NaN or inf, a rate off by 2% or more, a mean by 2% or more; at a tiny α, twice as many"
    " sizes below the largest, or none",
    parts=3 * len(laws.EXTREME),
)
def extreme_alpha(trial: Trial) -> Iterator[Finding]:
    """From α = 1e-3 to 1e6 the law holds; every number is finite."""
    yield from _finite_everywhere(trial)
    for law in laws.EXTREME:
        one = OneLaw(trial, law, BATCH)
        yield one.drops()
        if laws.is_alike(law):
            yield one.alike()
            continue
        yield one.mean()
        if law.alpha > LARGE or law.vary == "q":
            yield one.sizes(COARSE)
        else:
            yield _smaller_ones(one)
        yield one.in_range()
