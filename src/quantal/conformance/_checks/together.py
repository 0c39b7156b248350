"""Checks of many units together: three, four, twelve in a row, and how many of them are dropped."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import (
    Coins,
    Kolmogorov,
    Largest,
    Mean,
    Overlapping,
    Proportion,
    largest,
)
from quantal.conformance._cases import SMALL
from quantal.conformance._checks.granularity import first
from quantal.conformance._checks.places import Margin, by_place
from quantal.conformance._coins import (
    BIAS,
    FREQUENCIES,
    coins,
    count_ranks,
    gaps,
    lattice_waves,
    products,
    rank_slack,
    triple_products,
    uniform,
    window_parities,
)
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, MAIN, PLAIN, VARY_P, VARY_Q, drawn_laws
from quantal.conformance._precision import tolerance
from quantal.conformance._questions import OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH, FEW_UNITS, shape_for, strides
from quantal.conformance._signals import signals
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

LAW = MAIN[0]
LAWS = (
    LAW, Dilution(0.3, 2.0), Dilution(0.1, 0.5, vary="q"), Dilution(0.6, 10.0), Dilution(0.7, 1.0),
)  # fmt: skip
DEPENDENCE = 0.08
OTHER_DTYPES = 3  # at most
AT_ONE_HALF = (DROPOUT[2], VARY_P[2], VARY_Q[4])
"""Other laws at which a mask is a fair coin."""

STREAM = 2**16  # units, of which three or four are looked at
DEPENDENCE_AT_ALL_GAPS = 0.15
SHORT_STREAM = 2**15
GAPS, GAPS_QUICK = range(1, 1025), range(1, 129)
MOSTLY_KEPT = PLAIN[3]
"""A law at which nine units in ten show their uniform number."""

MASKS = (DROPOUT[1], DROPOUT[3], PLAIN[-5])
"""Laws of low and high rates: there masks of three units show what fair coins do not."""

MASKS_TOGETHER = 0.04
MASK_GAPS = (*range(1, 9), 16, 32, 64, 128, 4096)
MASK_DISTANCES = 8192
LATTICE = 0.04
LATTICE_GAPS = (
    *((gap, 2 * gap) for gap in (1, 2, 3, 4, 8, 16, 32, 64, 128, 4096)),
    (1, 64), (1, 4096), (64, 4096), (1, 3), (2, 3),
)  # fmt: skip
COUNTED = (MAIN[0], MAIN[1], DROPOUT[0], PLAIN[3], PLAIN[-4], VARY_Q[5], VARY_P[2], MAIN[2])
WINDOW = 12
WINDOWS = 0.02


def _laws(trial: Trial) -> tuple[Dilution, ...]:
    """Return the laws that are tried, the last of them drawn at random."""
    return (*LAWS, *drawn_laws(trial.subject.rng("together"), 1))


def _coins(
    trial: Trial, law: Dilution, calls: int, dtype: np.dtype[Any] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return both coins of each unit, (calls, *BATCH)."""
    one = OneLaw(trial, law, BATCH, dtype)
    c = one.calls(calls).reshape(-1, *BATCH)
    rounding = tolerance(one.exactness)
    return coins(uniform(law, c, trial.subject.rng(f"coins {law}"), rounding))


@statistical(
    "triples-independent",
    fault="a dependence of 8% among three units, or among two pairs of them; 15% at other gaps;"
    " 4% among three masks",
    parts=len(LAWS) + 3 + len(AT_ONE_HALF) + OTHER_DTYPES + len(MASKS),
)
def triples_independent(trial: Trial) -> Iterator[Finding]:
    """Three units are independent, and four in two pairs, even where any two of them are."""
    tried, distances = gaps(strides(BATCH), STREAM // 8), STREAM // 4
    # For each gap two coins: three units twice, over distances both ways, and four units.
    test = Coins(BIAS)
    worst_of = Largest(test, len(tried) * 2 * (2 * 2 + 1) * distances)
    for law in _laws(trial):
        two = tuple(coin.reshape(-1)[:STREAM] for coin in _coins(trial, law, 1))
        found = [
            (*largest(test, means, terms)[1:], f"{kind} units, two of them {gap} apart")
            for gap in tried
            for kind, means, terms in products(two, gap, distances)
        ]
        seen, count, what = _least_likely(test, found)
        yield trial.judge(f"{what}, {law}", worst_of, seen, count, stated=DEPENDENCE)
    # Two of three that are near each other by any number of units. In which half a unit is shows
    # an exclusive or, and whether it is inside or outside a sum, where most units are kept.
    distances = SHORT_STREAM // 4
    near = GAPS_QUICK if trial.quick else GAPS
    tries: list[tuple[Dilution, int, range, np.dtype[Any] | None]] = [
        (law, kind, near, None) for law, kind in ((LAW, 0), (MOSTLY_KEPT, 1))
    ]
    tries += [(law, 0, GAPS_QUICK, None) for law in AT_ONE_HALF]
    # In other dtypes a coin of the mask alone, whatever rounding has made of the sizes.
    tries += [(LAW, 0, GAPS_QUICK, dtype) for dtype in trial.subject.dtypes[1:]]
    for law, kind, gaps_of_two, dtype in tries:
        one = _coins(trial, law, 1, dtype)[kind].reshape(-1)[:SHORT_STREAM]
        found = [
            (*largest(test, means, terms)[1:], f"three units, two of them {gap} apart")
            for gap in gaps_of_two
            for _, means, terms in products((one,), gap, distances, pairs=False)
        ]
        seen, count, what = _least_likely(test, found)
        worst_of = Largest(test, len(gaps_of_two) * 2 * distances)
        where = f"{what}, {law}" + (f", {dtype.name}" if dtype else "")
        yield trial.judge(where, worst_of, seen, count, stated=DEPENDENCE_AT_ALL_GAPS)
    for law in MASKS:
        yield _three_masks(trial, law)


def _three_masks(trial: Trial, law: Dilution) -> Finding:
    """Ask whether the masks of three units are independent."""
    mask = signals(law, np.ones(1), 0.0)[0]
    ends = mask.low**3, mask.high**3, mask.low**2 * mask.high, mask.low * mask.high**2
    # A product shares a unit with six others, so seven sets are enough to keep those apart.
    width = mask.high - mask.low
    slack, var = (4 * CELL * width) ** 3, (1 + 4 * CELL * width**2) ** 3
    product = Mean(0.0, var, min(ends), max(ends), slack=slack, fault_var=1.5)
    test = Largest(Overlapping(product, sets=7), len(MASK_GAPS) * 2 * MASK_DISTANCES)
    fewest = math.prod(BATCH) - max(MASK_GAPS) - MASK_DISTANCES
    calls = -(-test.samples(MASKS_TOGETHER, trial.significance) // fewest)
    made = signals(law, OneLaw(trial, law, BATCH).calls(calls), 0.0)[0].values
    found = []
    for gap in MASK_GAPS:
        means, terms = triple_products(made, gap, MASK_DISTANCES)
        _, seen, count = largest(test.test, means, terms)
        found.append((seen, count, f"masks of three units, two of them {gap} apart"))
    seen, count, what = min(found, key=lambda one: float(test.test.log_p_values(one[0], one[1])))
    return trial.judge(f"{what}, {law}", test, seen, count, stated=MASKS_TOGETHER)


def _least_likely(test: Coins, found: list[tuple[float, int, str]]) -> tuple[float, int, str]:
    return min(found, key=lambda one: float(test.log_p_values(one[0], one[1])))


@statistical(
    "windows-independent",
    fault="a dependence of 2% among any of twelve units in a row, along any axis",
    parts=len(BATCH) * (len(LAWS) + 1),
)
def windows_independent(trial: Trial) -> Iterator[Finding]:
    """Twelve units in a row are independent, whichever of them are looked at together."""
    test = Largest(Coins(BIAS), 2 ** (WINDOW - 1))
    needed = test.samples(WINDOWS, trial.significance)
    fewest = min(math.prod(BATCH) // size * (size - WINDOW + 1) for size in BATCH)
    for law in _laws(trial):
        half, _ = _coins(trial, law, -(-needed // fewest))
        for axis in range(len(BATCH)):
            heads = np.moveaxis(half > 0, axis + 1, -1)
            means, count = window_parities(heads, WINDOW)
            _, seen, _ = largest(test.test, means, count)
            what = f"twelve units in a row on axis {axis}, {law}"
            yield trial.judge(what, test, seen, count, stated=WINDOWS)


@statistical(
    "no-lattice",
    fault="a dependence of 4% of a sum of multiples, up to 31, of two or three units",
    parts=len(LATTICE_GAPS),
    needs="single precision",
)
def no_lattice(trial: Trial) -> Iterator[Finding]:
    """Multiples of the uniform numbers of three units do not add up to whole numbers."""
    test = Largest(Coins(BIAS), FREQUENCIES**3)
    needed = test.samples(LATTICE, trial.significance) + max(map(max, LATTICE_GAPS))
    c = OneLaw(trial, MOSTLY_KEPT, BATCH).calls(-(-needed // math.prod(BATCH)))
    rng = trial.subject.rng(f"lattice {MOSTLY_KEPT}")
    numbers = uniform(MOSTLY_KEPT, c, rng, tolerance(trial.subject.dtype)).reshape(-1)
    for gaps_of_three in LATTICE_GAPS:
        means, count = lattice_waves(numbers, gaps_of_three)
        _, seen, _ = largest(test.test, means, count)
        what = f"waves over three units, 0, {gaps_of_three[0]} and {gaps_of_three[1]}"
        yield trial.judge(f"{what}, {MOSTLY_KEPT}", test, seen, count, stated=LATTICE)


GROUPS = {"row": 64, "sample": 4096, "stretch of 16": 16, "stretch of 1000": 1000}


@statistical(
    "counts-vary",
    fault="counts that vary twice or half as much as they should; by axis, call, shared axes or"
    " series, not at all",
    parts=lambda quick: 2 * len(GROUPS) + 1 + (4 if quick else len(COUNTED) + 9),
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
    for settings, shape in COUNTED_QUICK if trial.quick else _counted():
        yield _along_axes(trial, settings, shape)
    if not trial.quick:
        yield _along_axes(trial, ALL_OR_NOTHING, GROUPS_OF_FOUR, VARY_HALF_AS_MUCH)
    if not trial.quick and not trial.subject.lacks("calls"):
        yield _in_a_series(trial)


EIGHTH = 1 / 8
ALWAYS = 0.85  # what is in that eighth always has a share of 1 instead
SERIES = 520


def _counted() -> Iterator[tuple[Settings, Shape]]:
    """Yield settings, and the shapes in which their counts are looked at by axis."""
    for number, law in enumerate(COUNTED):
        yield Settings.of(law), shape_for(number, quick=False)
    for law, shape in ((LAW, (256, 300)), (LAW, SMALL), (COUNTED[1], (2000, 7))):
        yield Settings.of(law), shape
    for kind in ("broadcast_dims", "p_broadcast_dims"):
        for law, shape, axes in ((LAW, (3, 40, 50), (0,)), (COUNTED[2], (30, 20, 2), (2,))):
            yield Settings.of(law, **{kind: axes}), shape


COUNTED_QUICK = tuple((Settings.of(law), BATCH) for law in COUNTED[:4])

ALL_OR_NOTHING = Settings(0.4, 0.06, p_broadcast_dims=(0,))
"""Where masks are all but given by p: how many are dropped shows how p is drawn."""

GROUPS_OF_FOUR, VARY_HALF_AS_MUCH = (4, 300), 0.2


def _along_axes(trial: Trial, settings: Settings, shape: Shape, stated: float = ALWAYS) -> Finding:
    """Ask whether the number dropped along each axis, and in each call, is any as it should be.

    Of units that share something the first one counts.
    """
    shared = (*settings.broadcast_dims, *settings.p_broadcast_dims)
    own = tuple(1 if axis in shared else size for axis, size in enumerate(shape))
    sizes = {axis: size for axis, size in enumerate(own) if size > 15}
    test = _eighths_test(settings.rate, [*sizes.values(), math.prod(own)])
    calls = test.samples(stated, trial.significance)
    dropped = first(trial.subject.pool(settings, calls, shape), [axis + 1 for axis in shared]) == 0
    rng = trial.subject.rng(f"counts {settings} {shape}")
    found = [
        eighths(np.sum(dropped, axis=axis + 1), size, settings.rate, rng, f"index on axis {axis}")
        for axis, size in sizes.items()
    ]
    of_calls = np.sum(dropped.reshape(calls, -1), axis=1)
    found.append(eighths(of_calls, math.prod(own), settings.rate, rng, "call"))
    return by_place(trial, f"{settings}, {shape}", test, found, stated)


def _in_a_series(trial: Trial) -> Finding:
    """Ask the same of each unit over a layer's calls."""
    (seed,) = trial.subject.seeds("counts of a series", 1)
    c = trial.subject.layer(Settings.of(LAW), seed, FEW_UNITS, SERIES)
    test = _eighths_test(LAW.rate, [SERIES])
    dropped = np.sum(c == 0, axis=0)
    rng = trial.subject.rng("counts of a series")
    found = [eighths(dropped, SERIES, LAW.rate, rng, f"unit over {SERIES} calls")]
    return by_place(trial, f"{LAW}", test, found, ALWAYS)


def _eighths_test(share: float, sizes: Sequence[int]) -> Largest[Proportion]:
    """Return the test of how many counts, as uniform numbers, are in the two eighths."""
    slack = 2 * max(rank_slack(size, share) for size in sizes)
    return Largest(Proportion(EIGHTH, slack=slack), 2 * len(sizes))


def eighths(
    counts: NDArray[np.int64], size: int, share: Any, rng: np.random.Generator, what: str
) -> Margin:
    """Return how many counts are in the middle eighth, as uniform numbers, and in the outer one.

    A number that is the same every time is always in the middle, and shows in a few calls.
    """
    off = np.abs(count_ranks(counts.reshape(-1), size, share, rng) - 0.5)
    hits = [np.count_nonzero(off < EIGHTH / 2), np.count_nonzero(off > 0.5 - EIGHTH / 2)]
    about = f"number dropped by {what}, in its middle and outer eighths"
    return Margin(about, np.array(hits), np.full(2, off.size))


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
