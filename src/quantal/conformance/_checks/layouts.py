"""Checks that it makes no difference how an array lies in memory, nor whether it is empty."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantal.conformance._adapter import Array, Settings
from quantal.conformance._cases import LAWS, Case, cases, chance, numbers, seed_of
from quantal.conformance._finding import Finding
from quantal.conformance._precision import wide
from quantal.conformance._registry import Trial, exact
from quantal.conformance._subject import Shape

EMPTY: tuple[Shape, ...] = ((0,), (0, 5), (3, 0), (4, 0, 3), (0, 0), (2, 3, 0, 4), (1, 1, 0, 2, 2))
EMPTY_QUICK: tuple[Shape, ...] = ((0, 5),)


def layouts(x: Array) -> Iterator[tuple[str, Array, Array]]:
    """Yield the same array in other places of memory, each with all of the memory it lies in."""
    fortran = np.array(x, order="F")
    yield "Fortran order", fortran, fortran
    if x.ndim == 0:
        return
    spaced = np.full(tuple(2 * size for size in x.shape), 7, x.dtype)
    every_second = spaced[(slice(None, None, 2),) * x.ndim]
    every_second[...] = x
    yield "every second unit", every_second, spaced
    backwards = np.ascontiguousarray(x[(slice(None, None, -1),) * x.ndim])
    yield "negative strides", backwards[(slice(None, None, -1),) * x.ndim], backwards
    turned = np.ascontiguousarray(np.moveaxis(x, 0, -1))
    yield "axes turned", np.moveaxis(turned, -1, 0), turned
    fixed = x.copy()
    fixed.setflags(write=False)
    yield "read-only", fixed, fixed


@exact("memory-order")
def memory_order(trial: Trial) -> Iterator[Finding]:
    """In whatever order an array lies in memory, the same seed gives the same output."""
    subject, has_grad = trial.subject, not trial.subject.lacks("grad")
    for case in cases(subject):
        rng, seed = chance(subject, case, "memory-order")
        x, upstream = numbers(rng, case), numbers(rng, case)
        expected = subject.apply(x, case.settings, seed)
        both = subject.grad(x, upstream, case.settings, seed) if has_grad else (expected, expected)
        for (name, view, memory), (_, view_up, memory_up) in zip(
            layouts(x), layouts(upstream), strict=True
        ):
            before = memory.copy(), memory_up.copy()
            same = np.array_equal(wide(subject.apply(view, case.settings, seed)), wide(expected))
            what = f"{name}, {case}"
            yield trial.require(f"output, {what}", same, "the output is another", x.size)
            if has_grad:
                found = subject.grad(view, view_up, case.settings, seed)
                yield _same_pair(trial, what, found, both)
            pairs = zip((memory, memory_up), before, strict=True)
            intact = all(np.array_equal(wide(now), wide(then)) for now, then in pairs)
            yield trial.require(f"memory, {what}", intact, "memory was overwritten", x.size)
        if has_grad and x.ndim > 1:  # one of the two in another order than the other
            for name, one, other in (
                ("x in Fortran order", np.array(x, order="F"), upstream),
                ("upstream in Fortran order", x, np.array(upstream, order="F")),
            ):
                found = subject.grad(one, other, case.settings, seed)
                yield _same_pair(trial, f"{name} alone, {case}", found, both)
        yield from _one_value(trial, case, x, seed)


def _one_value(trial: Trial, case: Case, x: Array, seed: int) -> Iterator[Finding]:
    """Ask whether one number that stands for all units, as in the gradient of a sum, will do."""
    subject, what = trial.subject, f"one value for all units, {case}"
    one = np.broadcast_to(x[(slice(0, 1),) * x.ndim], x.shape)
    full = one.copy()
    output, expected = (subject.apply(array, case.settings, seed) for array in (one, full))
    same = np.array_equal(wide(output), wide(expected))
    yield trial.require(f"output, {what}", same, "the output is another", x.size)
    if not subject.lacks("grad"):
        found, both = (subject.grad(x, array, case.settings, seed) for array in (one, full))
        yield _same_pair(trial, what, found, both)


def _same_pair(
    trial: Trial, what: str, found: tuple[Array, Array], expected: tuple[Array, Array]
) -> Finding:
    """Ask whether an output and its gradient are those of the usual order."""
    same = [np.array_equal(wide(a), wide(b)) for a, b in zip(found, expected, strict=True)]
    other = " and ".join(
        name for name, equal in zip(("output", "gradient"), same, strict=True) if not equal
    )
    detail = f"another {other}"
    return trial.require(f"with gradient, {what}", all(same), detail, found[0].size)


@exact("empty-inputs", fault="an error, another shape or another dtype")
def empty_inputs(trial: Trial) -> Iterator[Finding]:
    """An array without units comes back as it is."""
    subject = trial.subject
    for number, shape in enumerate(EMPTY_QUICK if trial.quick else EMPTY):
        axis = number % len(shape)
        for settings in (
            LAWS[number % len(LAWS)],
            Settings(0.5, 1.0, broadcast_dims=(axis,)),
            Settings(0.5, 1.0, p_broadcast_dims=(axis,)),
            Settings(0.5, 1.0, training=False),
            Settings(0.0, 1.0),
            Settings(1.0, 1.0),
        ):
            case = Case(shape, settings, subject.dtypes[number % len(subject.dtypes)])
            x = np.ones(shape, case.dtype)
            seed = seed_of(subject, case, "empty")
            arrays = {"output": subject.apply(x, settings, seed)}
            if not subject.lacks("grad"):
                arrays |= zip(
                    ("grad's output", "gradient"), subject.grad(x, x, settings, seed), strict=True
                )
            for what, array in arrays.items():  # their shape has been looked at already
                detail = f"{what} is {array.dtype}"
                yield trial.require(f"{what}, {case}", array.dtype == case.dtype, detail)
