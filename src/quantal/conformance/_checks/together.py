"""Checks of many units together: three, four, twelve in a row, and how many of them are dropped."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Coins, Kolmogorov, Largest, largest
from quantal.conformance._coins import (
    BIAS,
    coins,
    count_ranks,
    gaps,
    products,
    rank_slack,
    uniform,
    window_parities,
)
from quantal.conformance._finding import Finding
from quantal.conformance._laws import MAIN
from quantal.conformance._precision import tolerance
from quantal.conformance._questions import OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH, FEW_UNITS, strides
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

LAW = MAIN[0]
LAWS = (LAW, Dilution(0.3, 2.0), Dilution(0.1, 0.5, vary="q"), Dilution(0.6, 10.0))
DEPENDENCE = 0.08
STREAM = 2**16  # units, of which three or four are looked at
DEPENDENCE_AT_ALL_GAPS = 0.15
SHORT_STREAM = 2**15
GAPS = range(1, 1025)
WINDOW = 12
WINDOWS = 0.02


def _coins(
    trial: Trial, law: Dilution, calls: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return both coins of each unit, (calls, *BATCH)."""
    c = OneLaw(trial, law, BATCH).calls(calls).reshape(-1, *BATCH)
    rounding = tolerance(trial.subject.dtype)
    return coins(uniform(law, c, trial.subject.rng(f"coins {law}"), rounding))


@statistical(
    "triples-independent",
    fault="a dependence of 8% among three units, or among two pairs of them; 15% at other gaps",
    parts=len(LAWS) + 1,
)
def triples_independent(trial: Trial) -> Iterator[Finding]:
    """Three units are independent, and four in two pairs, even where any two of them are."""
    tried, distances = gaps(strides(BATCH), STREAM // 8), STREAM // 4
    # For each gap two coins: three units twice, over distances both ways, and four units.
    test = Coins(BIAS)
    worst_of = Largest(test, len(tried) * 2 * (2 * 2 + 1) * distances)
    for law in LAWS:
        two = tuple(coin.reshape(-1)[:STREAM] for coin in _coins(trial, law, 1))
        found = [
            (*largest(test, means, terms)[1:], f"{kind} units, two of them {gap} apart")
            for gap in tried
            for kind, means, terms in products(two, gap, distances)
        ]
        seen, count, what = _least_likely(test, found)
        yield trial.judge(f"{what}, {law}", worst_of, seen, count, stated=DEPENDENCE)
    # Two of three that are near each other by any number of units, in which half they are.
    one = _coins(trial, LAW, 1)[0].reshape(-1)[:SHORT_STREAM]
    distances = SHORT_STREAM // 4
    found = [
        (*largest(test, means, terms)[1:], f"three units, two of them {gap} apart")
        for gap in GAPS
        for _, means, terms in products((one,), gap, distances, pairs=False)
    ]
    seen, count, what = _least_likely(test, found)
    worst_of = Largest(test, len(GAPS) * 2 * distances)
    yield trial.judge(f"{what}, {LAW}", worst_of, seen, count, stated=DEPENDENCE_AT_ALL_GAPS)


def _least_likely(test: Coins, found: list[tuple[float, int, str]]) -> tuple[float, int, str]:
    return min(found, key=lambda one: float(test.log_p_values(one[0], one[1])))


@statistical(
    "windows-independent",
    fault="a dependence of 2% among any of twelve units in a row, along any axis",
    parts=len(BATCH) * len(LAWS),
)
def windows_independent(trial: Trial) -> Iterator[Finding]:
    """Twelve units in a row are independent, whichever of them are looked at together."""
    test = Largest(Coins(BIAS), 2 ** (WINDOW - 1))
    needed = test.samples(WINDOWS, trial.significance)
    fewest = min(math.prod(BATCH) // size * (size - WINDOW + 1) for size in BATCH)
    for law in LAWS:
        half, _ = _coins(trial, law, -(-needed // fewest))
        for axis in range(len(BATCH)):
            heads = np.moveaxis(half > 0, axis + 1, -1)
            means, count = window_parities(heads, WINDOW)
            _, seen, _ = largest(test.test, means, count)
            what = f"twelve units in a row on axis {axis}, {law}"
            yield trial.judge(what, test, seen, count, stated=WINDOWS)


GROUPS = {"row": 64, "sample": 4096, "stretch of 16": 16, "stretch of 1000": 1000}


@statistical(
    "counts-vary",
    fault="counts that vary twice as much as they should, or half as much",
    parts=2 * len(GROUPS) + 1,
)
def counts_vary(trial: Trial) -> Iterator[Finding]:
    """The number of dropped units is as variable as that of independent ones."""
    rng = trial.subject.rng("counts-vary")
    twice = 0.08  # how far apart two normal laws are, one of them of twice the variance
    needed = {
        name: _ranks_test(size).samples(twice if size < 4096 else 0.3, trial.significance)
        for name, size in GROUPS.items()
    }
    units = max(GROUPS[name] * count for name, count in needed.items())
    half, _ = _coins(trial, LAW, -(-units // math.prod(BATCH)))
    c = OneLaw(trial, LAW, BATCH).calls(len(half))
    for name, size in GROUPS.items():
        for what, hit in (("dropped", c == 0), ("heads", half > 0)):
            stated = twice if size < 4096 else 0.3
            yield _judge(trial, f"{what} of a {name}", hit.reshape(-1), size, rng, stated)
    units = math.prod(FEW_UNITS)
    calls = _ranks_test(units).samples(0.3, trial.significance)
    small = trial.subject.pool(Settings.of(LAW), calls, FEW_UNITS)
    yield _judge(trial, "dropped of a call", small.reshape(-1) == 0, units, rng, 0.3)


def _ranks_test(size: int) -> Kolmogorov:
    return Kolmogorov(slack=rank_slack(size, 0.5))


def _judge(
    trial: Trial,
    what: str,
    hit: NDArray[np.bool_],
    size: int,
    rng: np.random.Generator,
    stated: float,
) -> Finding:
    counts = np.sum(hit[: len(hit) // size * size].reshape(-1, size), axis=1)
    ranks = count_ranks(counts, size, 0.5, rng)
    distance = Kolmogorov.distance(ranks, _same, _same, _same)
    about = f"number {what}: distance from the binomial law"
    return trial.judge(about, _ranks_test(size), distance, len(ranks), stated=stated)


def _same(x: Floats) -> Floats:
    return np.clip(x, 0, 1)
