"""Checks of the random stream: it is the seed's, and nobody else's."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from quantal.conformance._adapter import Settings, SupportsGlobalState
from quantal.conformance._cases import (
    DENSE,
    INF,
    PAIR,
    SMALL,
    Case,
    cases,
    chance,
    powers,
    seed_of,
)
from quantal.conformance._checks.gradient import differences, ratio
from quantal.conformance._finding import Finding
from quantal.conformance._precision import is_half, wide
from quantal.conformance._registry import Trial, exact

LAST = 2**31 - 1
FAR_OFF = 0.1
"""How far the share of dropped units is from the rate by chance in no run: 2⁻¹⁶⁰ for SMALL."""

DRAWS = (
    Settings(0.5, 1.0),
    Settings(0.3, INF),
    Settings(0.5, 1.0, broadcast_dims=PAIR),
    Settings(0.5, 1.0, p_broadcast_dims=PAIR),
)
"""A draw of each kind: QSD, dropout, shared coefficients, shared probabilities."""


@contextmanager
def _other_global_state() -> Iterator[None]:
    """Put NumPy's and Python's global generators into another state for a while."""
    ours, numpys = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        random.seed(20_260_101)
        np.random.seed(20_260_101)  # noqa: NPY002
        yield
    finally:
        random.setstate(ours)
        np.random.set_state(numpys)  # noqa: NPY002


@exact("determinism")
def determinism(trial: Trial) -> Iterator[Finding]:
    """The same seed gives the same draw, with a gradient or without; another seed another."""
    subject, has_grad = trial.subject, not trial.subject.lacks("grad")
    tried = list(cases(subject))
    first = []
    for case in tried:
        ones, seed = np.ones(case.shape, case.dtype), seed_of(subject, case, "determinism")
        draw = subject.apply(ones, case.settings, seed).copy()
        first.append(draw)
        with _other_global_state():
            again = subject.apply(ones, case.settings, seed)
        yield trial.require(
            f"same seed, other global state, {case}",
            np.array_equal(draw, again),
            "the draw depends on NumPy's or Python's global generator, or on what came before",
        )
        if has_grad:
            output, _ = subject.grad(ones, ones, case.settings, seed)
            differ = differences(case, wide(output), wide(draw))
            detail = f"apply and grad gave different draws for one seed: {differ} units"
            yield trial.require(f"same seed, with gradient, {case}", differ == 0, detail)
        if case.varies:
            other = subject.apply(ones, case.settings, seed ^ 1)
            differs = not np.array_equal(draw, other)
            yield trial.require(f"other seed, {case}", differs, "two seeds gave one draw")
    for case, draw in reversed(list(zip(tried, first, strict=True))):
        ones, seed = np.ones(case.shape, case.dtype), seed_of(subject, case, "determinism")
        same = np.array_equal(subject.apply(ones, case.settings, seed), draw)
        detail = "a seed gave another draw after others had been made"
        yield trial.require(f"same seed, later, {case}", same, detail)
    for seed in (0, 1, LAST):
        ones = np.ones(DENSE, subject.dtype)
        first_draw = subject.apply(ones, DRAWS[0], seed).copy()
        same = np.array_equal(first_draw, subject.apply(ones, DRAWS[0], seed))
        yield trial.require(f"seed {seed}, twice", same, f"the seed {seed} gave two draws")


@exact("settings-matter", fault="a setting that makes no difference")
def settings_matter(trial: Trial) -> Iterator[Finding]:
    """With one seed, another rate, α, vary or unit_mean gives other coefficients."""
    subject = trial.subject
    for shared in ((), PAIR):
        tried = {
            "the usual": Settings(0.5, 1.0, p_broadcast_dims=shared),
            "rate=0.45": Settings(0.45, 1.0, p_broadcast_dims=shared),
            "alpha=1.5": Settings(0.5, 1.5, p_broadcast_dims=shared),
            "alpha=30": Settings(0.5, 30.0, p_broadcast_dims=shared),
            "alpha=inf": Settings(0.5, INF, p_broadcast_dims=shared),
            "vary='q'": Settings(0.5, 1.0, vary="q", p_broadcast_dims=shared),
            "unit_mean": Settings(0.5, 1.0, unit_mean=True, p_broadcast_dims=shared),
            "rate=0.45, unit_mean": Settings(0.45, 1.0, unit_mean=True, p_broadcast_dims=shared),
        }
        if not is_half(subject.dtype):  # a cache must not take one for the other
            for rate in (0.501, 0.50001):
                tried[f"{rate=}"] = Settings(rate, 1.0, p_broadcast_dims=shared)
            for alpha in (1.01, 1.0001):
                tried[f"{alpha=}"] = Settings(0.5, alpha, p_broadcast_dims=shared)
        (seed,) = subject.seeds("settings-matter", 1)
        ones = np.ones(SMALL, subject.dtype)
        seen: dict[bytes, str] = {}
        for name, settings in tried.items():
            drawn = wide(subject.apply(ones, settings, seed))
            other = seen.setdefault(drawn.tobytes(), name)
            detail = f"{name} gave the same coefficients as {other}"
            yield trial.require(f"{name}, p_broadcast_dims={shared}", other == name, detail)
    yield from _rates_of_one_seed(trial)


def _rates_of_one_seed(trial: Trial) -> Iterator[Finding]:
    """Ask whether a rate drops its share where another has been drawn from the same seed."""
    (seed,) = trial.subject.seeds("settings-matter", 1, start=1)
    for alpha in (1.0, INF):
        for rate in (0.9, 0.1, 0.5):
            c = trial.subject.draw(Settings(rate, alpha), seed, SMALL)
            dropped = float(np.mean(c == 0))
            what = f"rate={rate!r}, alpha={alpha!r}, after others"
            detail = f"a share of {dropped:.2g} of the units was dropped"
            yield trial.require(what, abs(dropped - rate) < FAR_OFF, detail, c.size)


@exact("layer-determinism", needs="calls")
def layer_determinism(trial: Trial) -> Iterator[Finding]:
    """A layer seeded again makes the same calls again, no two of them alike."""
    subject, ones = trial.subject, np.ones(SMALL, trial.subject.dtype)
    for number, settings in enumerate(DRAWS):
        (seed,) = subject.seeds("layer-determinism", 1, start=number)
        first, again = (np.stack(subject.calls(ones, settings, seed, 8)) for _ in range(2))
        same = bool(np.all(first == again))
        yield trial.require(f"same seed, {settings}", same, "a seed gave two series of calls")
        fewer = np.stack(subject.calls(ones, settings, seed, 3))
        same = bool(np.all(first[:3] == fewer))
        yield trial.require(f"fewer calls, {settings}", same, "fewer calls are other ones")
        alike = len({call.tobytes() for call in first}) < len(first)
        yield trial.require(f"other calls, {settings}", not alike, "two calls gave one draw")
        other = np.stack(subject.calls(ones, settings, seed ^ 1, 8))
        mixed = {call.tobytes() for call in first} & {call.tobytes() for call in other}
        yield trial.require(f"other seed, {settings}", not mixed, "two seeds gave one call")
    for case in cases(subject):
        yield from _calls_of_any(trial, case)


def _calls_of_any(trial: Trial, case: Case) -> Iterator[Finding]:
    """Ask whether a layer's calls differ in any shape, and are x times the same, whatever x."""
    rng, seed = chance(trial.subject, case, "layer-determinism")
    x, ones = powers(rng, case), np.ones(case.shape, case.dtype)
    outputs, c = (
        wide(np.stack(trial.subject.calls(one, case.settings, seed, 2))) for one in (x, ones)
    )
    differ = differences(case, ratio(outputs, x), c)
    detail = f"{differ} of {c.size} outputs are not those for 1, times ±2ᵏ"
    yield trial.require(f"whatever x, in a series, {case}", differ == 0, detail, c.size)
    if case.varies:
        same = np.array_equal(c[0], c[1])
        yield trial.require(f"other calls, {case}", not same, "two calls gave one draw", c.size)


@exact("global-state")
def global_state(trial: Trial) -> Iterator[Finding]:
    """No global random state is changed."""
    subject = trial.subject
    watched: dict[str, Callable[[], object]] = {
        "Python's random": random.getstate,
        "NumPy's global generator": _numpy_state,
    }
    if isinstance(subject.adapter, SupportsGlobalState):
        watched["the framework's global generator"] = subject.adapter.global_state
    tried = [*cases(subject), Case(SMALL, Settings(0.5, 1.0, training=False), subject.dtype)]
    for case in tried:
        x, seed = np.ones(case.shape, case.dtype), seed_of(subject, case, "global-state")
        before = {name: state() for name, state in watched.items()}
        subject.apply(x, case.settings, seed)
        if not subject.lacks("grad"):
            subject.grad(x, x, case.settings, seed)
        if not subject.lacks("calls"):
            subject.calls(x, case.settings, seed, 2)
        for name, state in watched.items():
            detail = f"the state of {name} was changed"
            yield trial.require(f"{name}, {case}", state() == before[name], detail)


def _numpy_state() -> object:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return (kind, np.asarray(keys).tobytes(), *rest)
