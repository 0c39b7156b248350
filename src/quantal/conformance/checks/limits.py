"""Checks of the limits: test time, rates 0 and 1, extreme α, dtypes, half precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantal.conformance.adapter import Settings
from quantal.conformance.bounds import Mean, Proportion
from quantal.conformance.check import Finding, Trial, exact, statistical
from quantal.conformance.checks import laws
from quantal.conformance.checks.cases import EXTREMES, INF, SMALL
from quantal.conformance.checks.laws import CELL, LAWS
from quantal.conformance.subject import FLAT
from quantal.dilution import Dilution

DTYPES = ("float16", "float32", "float64")
HALF = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # the relative size of a rounding
EXTREME = (Dilution(0.4, 1e-3), Dilution(0.4, 1e6))
HALF_RATE = Dilution(1e-3, 0.2)


def dtypes(trial: Trial) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes that the adapter takes; bfloat16 needs ml_dtypes."""
    names = getattr(trial.subject.adapter, "dtypes", DTYPES)
    if "bfloat16" in names:
        import ml_dtypes

        return tuple(np.dtype(ml_dtypes.bfloat16 if n == "bfloat16" else n) for n in names)
    return tuple(np.dtype(name) for name in names)


def numbers(trial: Trial, label: str, shape: tuple[int, ...] = SMALL) -> NDArray[np.float32]:
    """Return numbers of both signs, with no zero and few digits, so that every dtype holds them."""
    rng = trial.subject.rng(label)
    drawn = rng.integers(1, 100, shape) * rng.choice([-1, 1], shape) / 16
    return np.asarray(drawn, np.float32)


def _identity(trial: Trial, label: str, cases: list[Settings]) -> Iterator[Finding]:
    for number, settings in enumerate(cases):
        (seed,) = trial.subject.seeds(label, 1, start=number)
        for dtype in dtypes(trial):
            x = numbers(trial, label).astype(dtype)
            upstream = numbers(trial, f"{label} upstream").astype(dtype)
            output, gradient = trial.subject.grad(x, upstream, settings, seed)
            same = bool(np.all(trial.subject.apply(x, settings, seed) == x))
            what = f"{settings}, {dtype}"
            yield trial.require(f"output = x, {what}", same, "apply changed x")
            same = bool(np.all(output == x))
            yield trial.require(f"output = x with gradient, {what}", same, "grad changed x")
            same = bool(np.all(gradient == upstream))
            yield trial.require(f"gradient = upstream, {what}", same, "grad changed the gradient")


@exact("eval-identity")
def eval_identity(trial: Trial) -> Iterator[Finding]:
    """Out of training the output is the input, at every rate and α."""
    pairs = ((0.5, 1.0), (0.2, 0.2), (0.9, 1e-3), (0.3, INF), (1.0, 1.0), (0.0, 1.0))
    cases = [Settings(rate, alpha, training=False) for rate, alpha in pairs]
    cases += [
        Settings(0.5, 1.0, vary="q", training=False),
        Settings(0.5, 1.0, unit_mean=True, training=False),
        Settings(0.5, 1.0, broadcast_dims=(1,), training=False),
        Settings(0.5, 1.0, p_broadcast_dims=(0,), training=False),
    ]
    yield from _identity(trial, "eval-identity", cases)


@exact("rate-zero-identity")
def rate_zero_identity(trial: Trial) -> Iterator[Finding]:
    """At rate 0 the output is the input."""
    cases = [Settings(0.0, alpha) for alpha in (1e-3, 0.2, 1.0, INF)]
    cases += [
        Settings(0.0, 1.0, vary="p"),
        Settings(0.0, 1.0, vary="q"),
        Settings(0.0, 1.0, unit_mean=True),
        Settings(0.0, 1.0, broadcast_dims=(1,)),
        Settings(0.0, 1.0, p_broadcast_dims=(0,)),
    ]
    yield from _identity(trial, "rate-zero-identity", cases)


@exact("rate-one-zeros", fault="anything but 0, in the output or its gradient")
def rate_one_zeros(trial: Trial) -> Iterator[Finding]:
    """At rate 1 the output is 0, and so is its gradient."""
    cases = [Settings(1.0, alpha) for alpha in (1e-3, 1.0, INF)]
    cases += [
        Settings(1.0, 1.0, vary="p"),
        Settings(1.0, 1.0, vary="q"),
        Settings(1.0, 1.0, unit_mean=True),
        Settings(1.0, 1.0, broadcast_dims=(1,)),
        Settings(1.0, 1.0, p_broadcast_dims=(0,)),
    ]
    for number, settings in enumerate(cases):
        (seed,) = trial.subject.seeds("rate-one-zeros", 1, start=number)
        x = numbers(trial, "rate-one-zeros")
        output, gradient = trial.subject.grad(x, np.ones_like(x), settings, seed)
        applied = trial.subject.apply(x, settings, seed)
        for what, array in (("output", output), ("gradient", gradient), ("apply", applied)):
            zero = bool(np.all(array == 0))
            yield trial.require(f"{what} = 0, {settings}", zero, f"{what} is not all 0")


def _finite_everywhere(trial: Trial) -> Iterator[Finding]:
    """Ask whether every number is finite, in all dtypes and at the ends of all ranges."""
    there = {dtype.name: dtype for dtype in dtypes(trial)}
    for number, (settings, name) in enumerate(EXTREMES):
        if name not in there:
            continue
        (seed,) = trial.subject.seeds("finite", 1, start=number)
        x = np.ones(SMALL, there[name])
        output, gradient = trial.subject.grad(x, x, settings, seed)
        for what, array in (("output", output), ("gradient", gradient)):
            finite = bool(np.isfinite(array.astype(np.float64)).all())
            yield trial.require(f"finite {what}, {settings}, {name}", finite, "it is not")


@statistical("extreme-alpha", fault="NaN or inf, a rate off by 2%, a mean off by 2%", parts=4)
def extreme_alpha(trial: Trial) -> Iterator[Finding]:
    """From α = 1e-3 to 1e6 the law holds; every number is finite."""
    yield from _finite_everywhere(trial)
    for law in EXTREME:
        yield laws.drops(trial, law, fault=0.02)
        yield laws.moments(trial, law, 1, fault=0.02)
        yield laws.in_range(trial, law, trial.subject.units(law, 2**16))


@exact("dtype-kept")
def dtype_kept(trial: Trial) -> Iterator[Finding]:
    """Output and gradient have the dtype of the input."""
    cases = (
        Settings(0.5, 1e-3),
        Settings(0.5, 1.0, training=False),
        Settings(0.0, 1.0),
        Settings(1.0, 1.0),
    )
    asked = [(settings, dtype) for settings in cases for dtype in dtypes(trial)]
    asked += [(Settings(0.5, 1e-3, p_broadcast_dims=(0,)), np.dtype("float16"))]
    for number, (settings, dtype) in enumerate(asked):
        (seed,) = trial.subject.seeds("dtype-kept", 1, start=number)
        if dtype in dtypes(trial):
            x = numbers(trial, "dtype-kept").astype(dtype)
            output, gradient = trial.subject.grad(x, x, settings, seed)
            applied = trial.subject.apply(x, settings, seed)
            for what, array in (("output", output), ("gradient", gradient), ("apply", applied)):
                detail = f"{what} is {array.dtype}, {settings}"
                same = array.dtype == dtype
                yield trial.require(f"{what} of {dtype}, {settings}", same, detail)


@statistical("half-precision", fault="a mean off by 1%, a drop probability off by 2⁻¹²", parts=3)
def half_precision(trial: Trial) -> Iterator[Finding]:
    """In half precision the mean and the drop probability are those of the law."""
    law = LAWS[0]
    for dtype in dtypes(trial):
        if (rounding := HALF.get(str(dtype))) is None:
            continue
        top = law.ceiling * (1 + rounding)
        var = law.var + 2 * rounding * top**2
        mean = Mean(law.mean, var, 0.0, top, slack=(rounding / 4 + 2 * CELL) * law.ceiling)
        stated = laws.MEAN_FAULT * law.mean
        n = mean.samples(stated, trial.level)
        seen = float(np.mean(_half(trial, law, n, dtype)))
        yield trial.judge(f"E[c], {dtype}, {law}", mean, seen, n, stated=stated)
        if dtype != np.float16:
            continue
        # Uniform numbers of so few digits would shift a probability by half their spacing.
        drop = Proportion(HALF_RATE.rate, slack=CELL)
        n = drop.samples(rounding / 2, trial.level)
        dropped = int(np.count_nonzero(_half(trial, HALF_RATE, n, dtype) == 0))
        yield trial.judge(f"P(c = 0), {dtype}, {HALF_RATE}", drop, dropped, n, stated=rounding / 2)


def _half(trial: Trial, law: Dilution, count: int, dtype: np.dtype[Any]) -> NDArray[np.float64]:
    calls = -(-count // int(np.prod(FLAT)))
    seeds = trial.subject.seeds(f"half {dtype} {law}", calls)
    draws = [trial.subject.draw(Settings.of(law), seed, FLAT, dtype) for seed in seeds]
    return np.concatenate([c.reshape(-1) for c in draws])[:count]
