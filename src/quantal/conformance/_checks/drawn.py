"""Checks of whole configurations drawn at random, so that no combination is safe for long."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._cases import Case, chance, powers
from quantal.conformance._checks.gradient import differences, ratio
from quantal.conformance._checks.granularity import Axes, first, group_count
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.layouts import layouts
from quantal.conformance._checks.shared_p import Groups
from quantal.conformance._finding import Finding
from quantal.conformance._laws import drawn_laws
from quantal.conformance._precision import coarseness, wide
from quantal.conformance._questions import values_of
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._signals import signals
from quantal.conformance._subject import Floats, Shape, Subject

COUNT, COUNT_QUICK = 72, 2
LAWS = 24
COPIES = 0.2
UNITS = 4000
KINDS: tuple[tuple[str, ...], ...] = (
    (), ("broadcast_dims",), ("p_broadcast_dims",), ("broadcast_dims", "p_broadcast_dims"),
)  # fmt: skip
MOST_CALLS = 64


def drawn_cases(subject: Subject, count: int) -> Iterator[Case]:
    """Yield configurations: any number of axes, any law, any dtype, any axes shared."""
    rng = subject.rng("drawn-cases")
    laws = drawn_laws(rng, LAWS)
    for number in range(count):
        # Each number of axes meets each kind of sharing, and each dtype.
        turn, axes = divmod(number, 6)
        shape, kinds = _shape(rng, axes), KINDS[(turn + axes) % len(KINDS)]
        settings = Settings.of(laws[rng.integers(LAWS)])
        if len(shape) > 1 and kinds:
            shared: dict[str, Any] = dict(zip(kinds, _shared(rng, axes, len(kinds)), strict=True))
            settings = replace(settings, **shared)
        dtype = subject.dtypes[(turn // len(KINDS) + axes) % len(subject.dtypes)]
        yield Case(shape, settings, dtype)


def _shape(rng: np.random.Generator, axes: int) -> Shape:
    """Return sizes whose product is a few thousand, some of them 1."""
    if axes == 0:
        return ()
    sizes = np.exp(rng.dirichlet(np.full(axes, 2.0)) * math.log(UNITS)).round().astype(int)
    return tuple(int(size) for size in np.maximum(sizes, 1))


def _shared(rng: np.random.Generator, axes: int, kinds: int) -> list[tuple[int, ...]]:
    """Return axes for each kind of sharing, counted from either end; one is left if it can be."""
    order = rng.permutation(axes)[: rng.integers(kinds, max(axes, kinds + 1))]
    signed = [int(a) - axes if rng.random() < 0.5 else int(a) for a in order]
    return [tuple(signed[kind::kinds]) for kind in range(kinds)]


def _groups(case: Case, c: Floats) -> Floats:
    """Return one coefficient for each group, (calls, groups)."""
    axes: Axes = tuple(axis % len(case.shape) for axis in case.settings.broadcast_dims)
    own = first(c, [axis + 1 for axis in axes])
    shared = tuple(axis % len(case.shape) for axis in case.settings.p_broadcast_dims)
    if not shared:
        return own.reshape(len(own), -1)
    return np.asarray(Groups.of(own, own.shape[1:], shared).c[0])


@statistical(
    "drawn-cases",
    fault="a rate off by 5% or more, an α by 20% or more, 20% of groups that are copies",
    parts=lambda quick: 3 * (COUNT_QUICK if quick else COUNT),
)
def drawn_cases_hold(trial: Trial) -> Iterator[Finding]:
    """Shapes, laws, dtypes and shared axes, drawn at random by the seed of the run, hold too."""
    subject = trial.subject
    for case in drawn_cases(subject, COUNT_QUICK if trial.quick else COUNT):
        yield from _one_draw(trial, case)
        law, groups, coarse = case.settings.law, case.groups, coarseness(case.dtype)
        needed = group_count(trial, law, groups, coarse)
        calls = min(-(-needed // groups), MOST_CALLS)
        c = subject.pool(case.settings, calls, case.shape, case.dtype)
        own = _groups(case, c)
        same = np.array_equal(c, np.broadcast_to(first(c, _whole(case)), c.shape))
        yield trial.require(f"shared coefficients, {case}", same, "units of a group differ")
        if own.size >= 2**12:
            yield from values_of(trial, f"{case}", law, own.reshape(-1), case.dtype)
        if groups > 1 and calls * groups >= needed:
            made = signals(law, own, coarse)
            yield at_all_distances(trial, f"{case}", made, groups // 2, COPIES)


def _whole(case: Case) -> list[int]:
    return [axis % len(case.shape) + 1 for axis in case.settings.broadcast_dims]


def _one_draw(trial: Trial, case: Case) -> Iterator[Finding]:
    """Ask whether output and gradient share one draw, in every layout."""
    subject = trial.subject
    rng, seed = chance(subject, case, "drawn-cases")
    x, upstream = powers(rng, case), powers(rng, case)
    expected = wide(subject.apply(x, case.settings, seed))
    for name, view, _ in layouts(x):
        same = np.array_equal(wide(subject.apply(view, case.settings, seed)), expected)
        yield trial.require(f"{name}, {case}", same, "the output is another", x.size)
    c = ratio(expected, wide(x))
    tried = {"the output of 1": subject.apply(np.ones_like(x), case.settings, seed)}
    if not subject.lacks("grad"):
        output, gradient = subject.grad(x, upstream, case.settings, seed)
        tried |= {"grad's output": ratio(output, x), "the gradient": ratio(gradient, upstream)}
    for what, seen in tried.items():
        differ = differences(case, wide(seen), c)
        detail = f"{differ} of {x.size} units have another coefficient in {what}"
        yield trial.require(f"{what}, {case}", differ == 0, detail, x.size)
    resting = replace(case.settings, training=False)
    same = np.array_equal(wide(subject.apply(x, resting, seed)), wide(x))
    yield trial.require(f"out of training, {case}", same, "the output is not the input", x.size)
