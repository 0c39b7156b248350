"""Checks of one draw: forward, backward, and from one input to another."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantal.conformance.adapter import Settings
from quantal.conformance.check import Finding, Trial, exact
from quantal.conformance.checks.cases import DRAWS, SMALL


@exact("backward-same-draw")
def backward_same_draw(trial: Trial) -> Iterator[Finding]:
    """The gradient is the upstream gradient times the coefficients of the output."""
    for number, settings in enumerate(DRAWS):
        (seed,) = trial.subject.seeds("backward", 1, start=number)
        rng = trial.subject.rng(f"backward {number}")
        # Powers of two, so that dividing by them gives the coefficient to the last bit.
        x, upstream = 2.0 ** rng.integers(-3, 4, (2, *SMALL)) * rng.choice([-1, 1], (2, *SMALL))
        x, upstream = x.astype(np.float32), upstream.astype(np.float32)
        output, gradient = trial.subject.grad(x, upstream, settings, seed)
        forward, backward = output / x, gradient / upstream
        differ = int(np.count_nonzero(forward != backward))
        detail = f"{differ} of {x.size} units have another coefficient in the gradient"
        yield trial.require(f"one draw, {settings}", differ == 0, detail, x.size)
        dropped = np.mean(forward == 0)
        detail = f"a share of {dropped:.2g} of the units was dropped"
        # A right implementation drops no unit, or every one, less than once in 10⁹ calls.
        yield trial.require(f"a draw at all, {settings}", 0 < dropped < 1, detail, x.size)


@exact("linearity")
def linearity(trial: Trial) -> Iterator[Finding]:
    """With one seed, the output is x times the same coefficients, whatever x."""
    for number, settings in enumerate(DRAWS):
        (seed,) = trial.subject.seeds("linearity", 1, start=number)
        rng = trial.subject.rng(f"linearity {number}")
        c = trial.subject.apply(np.ones(SMALL, np.float32), settings, seed)
        power = (2.0 ** rng.integers(-6, 7, SMALL) * rng.choice([-1, 1], SMALL)).astype(np.float32)
        scaled = trial.subject.apply(power, settings, seed)
        same = bool(np.all(scaled == c * power))
        detail = "the output for ±2ᵏ is not that for 1, times ±2ᵏ"
        yield trial.require(f"powers of two, {settings}", same, detail, c.size)
        x = rng.normal(size=SMALL).astype(np.float32)
        x[0] = 0
        close = np.allclose(trial.subject.apply(x, settings, seed), c * x, rtol=2.0**-21, atol=0)
        detail = "the output for x is not that for 1, times x"
        yield trial.require(f"normal numbers, {settings}", close, detail, c.size)


@exact("input-unchanged")
def input_unchanged(trial: Trial) -> Iterator[Finding]:
    """The caller's arrays are left as they were."""
    for number, settings in enumerate((*DRAWS, Settings(1.0, 1.0), Settings(0.0, 1.0))):
        (seed,) = trial.subject.seeds("input-unchanged", 1, start=number)
        rng = trial.subject.rng(f"input-unchanged {number}")
        x, upstream = rng.normal(size=(2, *SMALL)).astype(np.float32)
        before = x.copy(), upstream.copy()
        trial.subject.apply(x, settings, seed)
        trial.subject.grad(x, upstream, settings, seed)
        same = bool(np.all(x == before[0]) and np.all(upstream == before[1]))
        yield trial.require(f"inputs, {settings}", same, "an input was overwritten", x.size)
