"""Checks of the law in every dtype that there is."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Proportion
from quantal.conformance._checks.independence import at_all_distances, copies
from quantal.conformance._checks.shared_p import Groups, divided_groups
from quantal.conformance._finding import Finding
from quantal.conformance._laws import (
    CELL,
    DROPOUT,
    EVERY,
    MAIN,
    PLAIN,
    UNIT_MEAN,
    VARY_P,
    VARY_Q,
)
from quantal.conformance._precision import coarseness, is_half, roundoff
from quantal.conformance._questions import Faults, OneLaw, values_of
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH
from quantal.conformance._signals import signals
from quantal.dilution import Dilution

LAWS = (MAIN[0], PLAIN[3], PLAIN[-3], VARY_Q[0], VARY_P[0], DROPOUT[0], UNIT_MEAN[4], MAIN[1])
FEW_UNITS = 2**14
MOST_IN_HALF = float(np.finfo(np.float16).max)
OTHERS = 3  # dtypes besides the one of all other checks, at most
COARSE = Faults((0.05, 0.1, 0.2), (0.2, 0.4, 1.0), (0.05, 0.1, 0.2))
SHARED: tuple[dict[str, tuple[int, ...]], ...] = (
    {"broadcast_dims": (0,)},
    {"p_broadcast_dims": (0,)},
)
DIVIDED = 0.04
SHARED_SHAPE, SHARED_CALLS = (3, 4099), 3
PAIRS = (2, 2**17)
CLOSE_TO_MEAN = 3000.0
"""An α at which hardly any p is 1, however small the rate."""

FEW_PER_MILLE = Dilution(1e-3, 0.2)


@statistical(
    "dtype-law",
    fault="a rate or a mean off by 5% or more, a tiny rate by half of it, an α by 20% or more,"
    " copies as elsewhere; at other laws a rate off by 20% or more",
    parts=OTHERS * (3 * len(LAWS) + 2 + 2 * len(SHARED) + 1 + 2 * len(EVERY)),
)
def dtype_law(trial: Trial) -> Iterator[Finding]:
    """The law holds in every dtype, and units are independent there."""
    subject = trial.subject
    for dtype in subject.dtypes[1:]:
        for law in LAWS:
            yield from OneLaw(trial, law, BATCH, dtype).ask(COARSE)
        yield OneLaw(trial, FEW_PER_MILLE, BATCH, dtype).drops(Faults(rate=(0.5,)))
        units = math.prod(BATCH)
        stated, calls = copies(trial, MAIN[0], units, (0.05,), dtype)
        c = OneLaw(trial, MAIN[0], BATCH, dtype).calls(calls)
        made = signals(MAIN[0], c, coarseness(dtype))
        what = f"{MAIN[0]}, {dtype.name}"
        yield at_all_distances(trial, what, made, units // 2, stated)
        if not trial.quick:
            yield from _every_law(trial, dtype)
            yield from _shared(trial, dtype)
    yield trial.require(f"{len(subject.dtypes)} dtypes", True, "")


def _every_law(trial: Trial, dtype: np.dtype[Any]) -> Iterator[Finding]:
    """Ask for a few units of each of the other laws, as far as these tell."""
    for law in EVERY:
        if law not in LAWS and (dtype != np.float16 or law.ceiling < MOST_IN_HALF):
            one = OneLaw(trial, law, BATCH, dtype)
            yield from values_of(trial, f"{one}", law, one.units(FEW_UNITS), dtype)


def _shared(trial: Trial, dtype: np.dtype[Any]) -> Iterator[Finding]:
    """Ask whether shared coefficients, and shared probabilities, follow the law in a dtype."""
    for axes in SHARED:
        settings = Settings.of(MAIN[0], **axes)
        c = trial.subject.pool(settings, SHARED_CALLS, SHARED_SHAPE, dtype)
        yield from values_of(
            trial, f"{settings}, {dtype.name}", MAIN[0], c[:, 0].reshape(-1), dtype
        )
        if settings.p_broadcast_dims:
            groups = Groups.of(c, SHARED_SHAPE, (0,))
            yield divided_groups(trial, f"{settings}, {dtype.name}", MAIN[0], groups, DIVIDED)


@statistical(
    "half-precision",
    fault="a mean off by 1%, a drop probability off by 2⁻¹²",
    parts=4,
    needs="half precision",
)
def half_precision(trial: Trial) -> Iterator[Finding]:
    """In half precision the mean and the drop probability are those of the law."""
    for dtype in trial.subject.dtypes:
        if not is_half(dtype):
            continue
        yield OneLaw(trial, MAIN[0], BATCH, dtype).mean(Faults(mean=(0.01,)))
        if dtype != np.float16:
            continue
        # Uniform numbers of so few digits would shift a probability by half their spacing.
        law, stated = FEW_PER_MILLE, roundoff(dtype) / 2
        test = Proportion(law.rate, slack=CELL)
        n = test.samples(stated, trial.significance)
        dropped = int(np.count_nonzero(OneLaw(trial, law, BATCH, dtype).units(n) == 0))
        yield trial.judge(f"P(c = 0), float16, {law}", test, dropped, n, stated=stated)
        # And so would those that masks of a shared probability compare with it.
        settings = Settings(law.rate, CLOSE_TO_MEAN, p_broadcast_dims=(0,))
        calls = -(-n // PAIRS[1])
        c = trial.subject.pool(settings, calls, PAIRS, dtype)[:, 0].reshape(-1)[:n]
        dropped = int(np.count_nonzero(c == 0))
        yield trial.judge(f"P(c = 0), float16, {settings}", test, dropped, n, stated=stated)
