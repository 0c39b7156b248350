"""Checks of the random stream: it is the seed's, and nobody else's."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from quantal.conformance.adapter import Settings, SupportsGlobalState
from quantal.conformance.check import Finding, Trial, exact
from quantal.conformance.checks.cases import DRAWS, SMALL


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
    subject, ones = trial.subject, np.ones(SMALL, np.float32)
    for number, settings in enumerate(DRAWS):
        one, two = subject.seeds("determinism", 2, start=2 * number)
        first = subject.apply(ones, settings, one)
        again = subject.apply(ones, settings, one)
        yield trial.require(
            f"same seed, {settings}", bool(np.all(first == again)), "a seed gave two draws"
        )
        with _other_global_state():
            again = subject.apply(ones, settings, one)
        yield trial.require(
            f"same seed, other global state, {settings}",
            bool(np.all(first == again)),
            "the draw depends on NumPy's or Python's global generator",
        )
        with_gradient, _ = subject.grad(ones, ones, settings, one)
        yield trial.require(
            f"same seed, with gradient, {settings}",
            bool(np.all(first == with_gradient)),
            "apply and grad gave different draws for one seed",
        )
        other = subject.apply(ones, settings, two)
        yield trial.require(
            f"other seed, {settings}", bool(np.any(first != other)), "two seeds gave one draw"
        )


@exact("layer-determinism", needs_calls=True)
def layer_determinism(trial: Trial) -> Iterator[Finding]:
    """A layer seeded again makes the same calls again, no two of them alike."""
    subject, ones = trial.subject, np.ones(SMALL, np.float32)
    for number, settings in enumerate(DRAWS):
        (seed,) = subject.seeds("layer-determinism", 1, start=number)
        first, again = (np.stack(subject.calls(ones, settings, seed, 4)) for _ in range(2))
        same = bool(np.all(first == again))
        yield trial.require(f"same seed, {settings}", same, "a seed gave two series of calls")
        alike = len({call.tobytes() for call in first}) < len(first)
        yield trial.require(f"other calls, {settings}", not alike, "two calls gave one draw")


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
    x = np.ones(SMALL, np.float32)
    for number, settings in enumerate((*DRAWS, Settings(0.5, 1.0, training=False))):
        (seed,) = subject.seeds("global-state", 1, start=number)
        before = {name: state() for name, state in watched.items()}
        subject.apply(x, settings, seed)
        subject.grad(x, x, settings, seed)
        if subject.has_calls:
            subject.calls(x, settings, seed, 2)
        for name, state in watched.items():
            detail = f"the state of {name} was changed"
            yield trial.require(f"{name}, {settings}", state() == before[name], detail)


def _numpy_state() -> object:
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002
    return (kind, np.asarray(keys).tobytes(), *rest)
