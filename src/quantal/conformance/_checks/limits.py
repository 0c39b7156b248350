"""Checks of the limits: test time, rates 0 and 1, extreme α; and that dtypes are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from quantal.conformance._adapter import Array, Settings
from quantal.conformance._cases import DENSE, INF, SHAPES, SMALL, Case, numbers, rng_of, seed_of
from quantal.conformance._finding import Finding
from quantal.conformance._questions import Faults, OneLaw
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._shapes import BATCH
from quantal.conformance._subject import Subject
from quantal.dilution import Dilution

EXTREME = (Dilution(0.4, 1e-3), Dilution(0.4, 1e6), Dilution(0.8, 1e-3), Dilution(0.1, 1e6))
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
    """Return what comes out of one call, with and without a gradient."""
    seed = seed_of(trial.subject, case, label)
    found = {"output": trial.subject.apply(x, case.settings, seed)}
    if not trial.subject.lacks("grad"):
        output, gradient = trial.subject.grad(x, upstream, case.settings, seed)
        found |= {"output with gradient": output, "gradient": gradient}
    return found


def _tried(subject: Subject, settings: Settings) -> Iterator[Case]:
    """Yield calls with some settings in each dtype, and without sharing in each shape."""
    for dtype in subject.dtypes:
        yield Case(SMALL, settings, dtype)
    if not settings.broadcast_dims + settings.p_broadcast_dims:
        for shape in SHAPES:
            yield Case(shape, settings, subject.dtype)


def _identity(trial: Trial, label: str, **limit: Any) -> Iterator[Finding]:
    for settings in OFF:
        for case in _tried(trial.subject, replace(settings, **limit)):
            rng = rng_of(trial.subject, case, label)
            x, upstream = numbers(rng, case), numbers(rng, case)
            for what, array in _arrays(trial, case, x, upstream, label).items():
                same = bool(np.all(array == (upstream if what == "gradient" else x)))
                detail = f"the {what} is not what went in"
                yield trial.require(f"{what}, {case}", same, detail, x.size)


@exact("eval-identity")
def eval_identity(trial: Trial) -> Iterator[Finding]:
    """Out of training the output is the input, at every rate and α."""
    yield from _identity(trial, "eval-identity", training=False)
    yield from _identity(trial, "eval-identity at rate 1", training=False, rate=1.0)


@exact("rate-zero-identity")
def rate_zero_identity(trial: Trial) -> Iterator[Finding]:
    """At rate 0 the output is the input."""
    yield from _identity(trial, "rate-zero-identity", rate=0.0)


@exact("rate-one-zeros", fault="anything but 0, in the output or its gradient")
def rate_one_zeros(trial: Trial) -> Iterator[Finding]:
    """At rate 1 the output is 0, and so is its gradient."""
    for settings in OFF:
        for case in _tried(trial.subject, replace(settings, rate=1.0)):
            x = numbers(rng_of(trial.subject, case, "rate-one"), case)
            for what, array in _arrays(trial, case, x, np.ones_like(x), "rate-one").items():
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


@statistical(
    "extreme-alpha",
    fault="NaN or inf, a rate off by 2% or more, a mean by 2% or more",
    parts=3 * len(EXTREME),
)
def extreme_alpha(trial: Trial) -> Iterator[Finding]:
    """From α = 1e-3 to 1e6 the law holds; every number is finite."""
    yield from _finite_everywhere(trial)
    for law in EXTREME:
        one = OneLaw(trial, law, BATCH)
        yield one.drops()
        yield one.mean()
        if law.alpha > LARGE:
            yield one.sizes(Faults(alpha=(0.2, 0.4, 1.0)))
        yield one.in_range()
