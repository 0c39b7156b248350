"""Checks of one draw: forwards, backwards, and from one input to another."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from quantal.conformance._adapter import Array
from quantal.conformance._cases import (
    LAST_DIGITS,
    Case,
    all_cases,
    cases,
    chance,
    close_to_one,
    large,
    numbers,
    powers,
)
from quantal.conformance._finding import Finding
from quantal.conformance._precision import digits as digits_of
from quantal.conformance._precision import tolerance, wide
from quantal.conformance._registry import Trial, exact
from quantal.conformance._subject import Floats

_FEW_DIGITS = 2.0**-10  # a product with a coefficient below this may have fewer, in float16
MOST_STRANGE = 10_000  # units of a call in which some are inf or NaN


def ratio(array: Array, by: Array) -> Floats:
    """Return a quotient by powers of two."""
    return np.asarray(wide(array) / wide(by))


def differences(case: Case, one: Floats, other: Floats) -> int:
    """Return how many coefficients are not the same, but for rounding; 0 is 0 in both."""
    least = _least(case)
    close = np.isclose(one, other, rtol=tolerance(case.dtype), atol=least)
    return int(
        np.count_nonzero(~close | ((one == 0) != (other == 0)) & (np.maximum(one, other) > least))
    )


def _least(case: Case) -> float:
    """Return the size of a coefficient below which its product with x may have fewer digits."""
    # x is no smaller than 1/8 in float16, and than 2⁻⁶⁰ in what has the exponents of float32.
    return 2.0**-21 if case.dtype == np.float16 else 2.0**-60


def _to_the_last_digit(trial: Trial, case: Case, what: str, seed: int) -> Finding:
    """Ask whether numbers that differ in their last digits differ in what becomes of them."""
    ones = np.ones(case.shape, case.dtype)
    x = close_to_one(trial.subject.rng(f"digits {case}"), case)
    if what == "gradient":
        c, found = (trial.subject.grad(ones, g, case.settings, seed)[1] for g in (ones, x))
    else:
        c, found = (trial.subject.apply(one, case.settings, seed) for one in (ones, x))
    shows = np.isfinite(wide(c)) & (wide(c) > _FEW_DIGITS)
    seen, expected = (wide(one)[shows].astype(np.float64) for one in (found, x))
    off = np.abs(seen / wide(c)[shows] - expected)
    differ = int(np.count_nonzero(off > 2.0 ** (LAST_DIGITS - 1 - digits_of(case.dtype))))
    detail = f"{differ} of {x.size} units have lost the last digits of the {what}"
    return trial.require(f"digits, {what}, {case}", differ == 0, detail, x.size)


def _near_the_largest(trial: Trial, case: Case, what: str, c: Floats, seed: int) -> Finding:
    """Ask whether large numbers, as of a scaled loss, are not lost where the product is finite."""
    x = large(trial.subject.rng(f"large {case}"), case)
    with np.errstate(over="ignore"):  # of those that a large coefficient meets
        if what == "gradient":
            ones = np.ones(case.shape, case.dtype)
            found = trial.subject.grad(ones, x, case.settings, seed)[1]
        else:
            found = trial.subject.apply(x, case.settings, seed)
    fits = c < 2  # so that the product is at most half of the largest number
    seen = ratio(found, x)
    differ = differences(case, seen[fits], c[fits])
    detail = f"of {differ} of {x.size} units a large {what} is lost"
    return trial.require(f"large numbers, {what}, {case}", differ == 0, detail, x.size)


@exact("backward-same-draw", fault="any difference beyond rounding", needs="grad")
def backward_same_draw(trial: Trial) -> Iterator[Finding]:
    """The gradient is the upstream gradient times the coefficients of the output."""
    for case in all_cases(trial.subject):
        rng, seed = chance(trial.subject, case, "backward")
        x, upstream = powers(rng, case), powers(rng, case)
        output, gradient = trial.subject.grad(x, upstream, case.settings, seed)
        forward, backward = ratio(output, x), ratio(gradient, upstream)
        differ = differences(case, forward, backward)
        detail = f"{differ} of {x.size} units have another coefficient in the gradient"
        yield trial.require(f"one draw, {case}", differ == 0, detail, x.size)
        if case.varies:
            dropped = float(np.mean(forward == 0))
            detail = f"a share of {dropped:.2g} of the units was dropped"
            yield trial.require(f"a draw at all, {case}", 0 < dropped < 1, detail, x.size)
        yield _near_the_largest(trial, case, "gradient", forward, seed)
        yield _to_the_last_digit(trial, case, "gradient", seed)
        # What goes backwards does not depend on what came forwards, not even where that is 0,
        # and where nothing comes from behind nothing goes on, with no effect on other units.
        other = numbers(rng, case) * rng.integers(0, 2, case.shape).astype(case.dtype)
        come = rng.integers(0, 2, case.shape)
        some = np.asarray(upstream * come.astype(case.dtype))
        _, again = trial.subject.grad(other, some, case.settings, seed)
        differ = differences(case, ratio(again, upstream), backward * come)
        detail = f"for other inputs, {differ} of {x.size} units have another gradient"
        yield trial.require(f"whatever x and upstream, {case}", differ == 0, detail, x.size)


@exact("linearity", fault="any difference beyond rounding")
def linearity(trial: Trial) -> Iterator[Finding]:
    """With one seed, the output is x times the same coefficients, whatever x."""
    for case in all_cases(trial.subject):
        rng, seed = chance(trial.subject, case, "linearity")
        ones = np.ones(case.shape, case.dtype)
        c = wide(trial.subject.apply(ones, case.settings, seed))
        power = powers(rng, case)
        scaled = ratio(trial.subject.apply(power, case.settings, seed), power)
        differ = differences(case, scaled, c)
        detail = f"for ±2ᵏ, {differ} of {c.size} outputs are not those for 1, times ±2ᵏ"
        yield trial.require(f"powers of two, {case}", differ == 0, detail, c.size)
        yield _near_the_largest(trial, case, "output", c, seed)
        yield _to_the_last_digit(trial, case, "input", seed)
        x = np.asarray(numbers(rng, case) * rng.integers(0, 2, case.shape).astype(case.dtype))
        y = wide(trial.subject.apply(x, case.settings, seed))
        close = np.isclose(y, c * wide(x), rtol=2 * tolerance(case.dtype), atol=_least(case))
        detail = f"{np.count_nonzero(~close)} of {c.size} outputs are not those for 1, times x"
        yield trial.require(f"other numbers, {case}", bool(np.all(close)), detail, c.size)


@exact("input-unchanged")
def input_unchanged(trial: Trial) -> Iterator[Finding]:
    """The caller's arrays are left as they were, and so are the arrays returned before."""
    for case in cases(trial.subject):
        rng, seed = chance(trial.subject, case, "input-unchanged")
        x, upstream = numbers(rng, case), numbers(rng, case)
        before = x.copy(), upstream.copy()
        returned = _returned(trial, case, x, upstream, seed)
        kept = {what: array.copy() for what, array in returned.items()}
        same = bool(np.all(x == before[0]) and np.all(upstream == before[1]))
        yield trial.require(f"inputs, {case}", same, "an input was overwritten", x.size)
        _returned(trial, case, x + x, upstream + upstream, (seed + 1) % 2**31)
        for what, array in returned.items():
            same = bool(np.all(array == kept[what]))
            detail = f"a later call overwrote the {what}"
            yield trial.require(f"{what}, {case}", same, detail, x.size)


def _returned(trial: Trial, case: Case, x: Array, upstream: Array, seed: int) -> dict[str, Array]:
    """Return all arrays that an implementation returns, one way or another."""
    subject = trial.subject
    found = {"output": subject.apply(x, case.settings, seed)}
    if not subject.lacks("grad"):
        output, gradient = subject.grad(x, upstream, case.settings, seed)
        found |= {"output with gradient": output, "gradient": gradient}
    if not subject.lacks("calls"):
        outputs = subject.calls(x, case.settings, seed, 2)
        found |= {f"output of call {call}": output for call, output in enumerate(outputs)}
    return found


@exact("non-finite-inputs", fault="an inf or NaN that spreads, or that is lost where it is kept")
def non_finite_inputs(trial: Trial) -> Iterator[Finding]:
    """An inf or NaN stays where it is; where it is dropped it is 0, or NaN as 0·inf is."""
    subject = trial.subject
    for case in cases(subject):
        if not 0 < math.prod(case.shape) <= MOST_STRANGE or not case.shape:
            continue
        rng, seed = chance(subject, case, "non-finite")
        x = numbers(rng, case)
        odd = rng.choice([0, 1, 2, 3], case.shape, p=[0.7, 0.1, 0.1, 0.1])
        strange = np.choose(odd, [wide(x), np.inf, -np.inf, np.nan]).astype(case.dtype)
        usual = {"outputs": subject.apply(x, case.settings, seed)}
        with np.errstate(invalid="ignore"):  # 0·inf, of which NumPy would warn
            found = {"outputs": subject.apply(strange, case.settings, seed)}
            if not subject.lacks("grad"):
                usual["gradients"] = subject.grad(x, x, case.settings, seed)[1]
                found["gradients"] = subject.grad(x, strange, case.settings, seed)[1]
                apart = subject.grad(strange, x, case.settings, seed)[1]
                unmoved = np.array_equal(wide(apart), wide(usual["gradients"]))
                detail = "the gradient is another where an input is inf or NaN"
                yield trial.require(f"strange inputs, {case}", unmoved, detail, x.size)
        for what, array in found.items():
            y, expected = wide(array), wide(usual[what])
            alone = bool(np.all((y == expected)[odd == 0]))
            detail = f"{what} beside an inf or NaN have changed"
            yield trial.require(f"other {what}, {case}", alone, detail, x.size)
            same, gone = _alike(y, wide(strange)), (y == 0) | np.isnan(y)
            # A product that is 0 in float16 may have had a coefficient that was not.
            right = np.where(expected != 0, same, gone | (same & (case.dtype == np.float16)))
            wrong = np.count_nonzero(~right[odd != 0])
            detail = f"{wrong} of {np.count_nonzero(odd)} are not what they were, 0, or NaN"
            yield trial.require(f"inf and NaN, {what}, {case}", wrong == 0, detail, x.size)


def _alike(one: Floats, other: Floats) -> Floats:
    return np.asarray((one == other) | (np.isnan(one) & np.isnan(other)))
