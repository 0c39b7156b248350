"""Checks that draws of different seeds have nothing to do with each other."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Coins, Largest, Overlapping, Proportion, largest
from quantal.conformance._cases import SMALL
from quantal.conformance._checks.places import Margin, by_place
from quantal.conformance._coins import BIAS
from quantal.conformance._finding import Finding
from quantal.conformance._laws import CELL, DROPOUT, MAIN, VARY_Q
from quantal.conformance._precision import coarseness
from quantal.conformance._questions import OneLaw, values_of
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._shapes import BATCH, FEW_UNITS
from quantal.conformance._signals import (
    Signal,
    between_calls,
    least_likely,
    pair_test,
    signals,
)
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

LAW = MAIN[0]
SETTINGS = Settings.of(LAW)
SEEDS = 2**31  # a seed is below this
COPIES = 0.02

NEAR = 8
"""Neighbouring seeds, or calls, that are compared with each other: up to so many apart."""

WIDE = (5, 160)
"""A call of which two masks are not alike by chance, not even if rows or columns share theirs."""

OTHERS = (
    Settings.of(DROPOUT[2]),
    Settings.of(VARY_Q[4]),
    Settings.of(LAW, broadcast_dims=(0,)),
    Settings.of(LAW, p_broadcast_dims=(1,)),
    SETTINGS,
)
"""Settings that may take another way from a seed to a draw, each in another dtype."""

FAR = (
    *(2**bit for bit in range(31)),
    *(3, 5, 6, 7, 9, 10, 100, 1000, 10_000, 100_000, 1_000_000, 65_535, 65_537, 3 * 2**16),
)
"""How far apart two seeds may be for an implementation to mix them up."""


def apart_test(
    trial: Trial, units: int, shifts: int, stated: float, law: Dilution = LAW
) -> Largest[Overlapping]:
    """Return the test of units of two calls, so many shifts of which are looked at."""
    made = two_signals(trial, np.ones((1, 1)), law)
    return pair_test(made, stated, len(made) ** 2 * shifts * (2 * (units // 2) + 1))


def two_signals(
    trial: Trial, c: Floats, law: Dilution = LAW, dtype: np.dtype[Any] | None = None
) -> list[Signal]:
    """Return of what coefficients show whether they were dropped, and whether they are large."""
    return signals(law, c, coarseness(trial.subject.dtype if dtype is None else dtype))[:2]


def compare(
    trial: Trial,
    what: str,
    made: list[Signal],
    steps: range,
    test: Largest[Overlapping],
    stated: float,
) -> Finding:
    """Ask whether units of calls so many steps apart are uncorrelated, at all distances."""
    distances = made[0].values.shape[1] // 2
    found = []
    for apart in steps:
        one, index, seen, terms = least_likely(list(between_calls(made, distances, apart)), test)
        likelihood = test.test.p_value(seen, terms)
        names = f"{one.names[0]} and {one.names[1]}, {what.format(apart)}"
        found.append((likelihood, f"{names}, units {index - distances} apart", seen, terms))
    _, about, seen, terms = min(found)
    return trial.judge(about, test, seen, terms, stated=stated)


def calls_needed(
    trial: Trial, test: Largest[Overlapping], units: int, steps: int, stated: float
) -> int:
    """Return how many calls it takes to compare those that are up to so many steps apart."""
    return steps + -(-test.samples(stated, trial.significance) // (units - units // 2))


@statistical("seeds-independent", fault="2% of units that are copies, at any distance", parts=1)
def seeds_independent(trial: Trial) -> Iterator[Finding]:
    """Draws of different seeds are independent."""
    units, steps = math.prod(BATCH), range(1, 4)
    test = apart_test(trial, units, len(steps), COPIES)
    calls = calls_needed(trial, test, units, max(steps), COPIES)
    made = two_signals(trial, OneLaw(trial, LAW, BATCH).calls(calls))
    yield compare(trial, "far seeds", made, steps, test, COPIES)


@statistical("neighbouring-seeds", fault="2% of units that are copies, at any distance", parts=1)
def neighbouring_seeds(trial: Trial) -> Iterator[Finding]:
    """Draws of the seeds s, s + 1, s + 2, … are independent, also shifted against each other."""
    units, steps = math.prod(BATCH), range(1, NEAR + 1)
    test = apart_test(trial, units, NEAR, COPIES)
    calls = calls_needed(trial, test, units, NEAR, COPIES)
    start = trial.subject.seeds("neighbouring-seeds", 1)[0] % (SEEDS - calls)
    drawn = [trial.subject.draw(SETTINGS, start + step, BATCH).reshape(-1) for step in range(calls)]
    made = two_signals(trial, np.stack(drawn))
    yield compare(trial, "seeds {} apart", made, steps, test, COPIES)


@statistical(
    "seeds-apart", fault="two draws of which 30% are copies, at any distance", parts=len(FAR)
)
def seeds_apart(trial: Trial) -> Iterator[Finding]:
    """Draws of two seeds are independent, also where they differ in one bit, or by 2¹⁶."""
    stated, units = 0.3, math.prod(SMALL)
    test = apart_test(trial, units, 1, stated)
    pairs = calls_needed(trial, test, units, 0, stated)
    for number, distance in enumerate(FAR):
        seeds = trial.subject.seeds("seeds-apart", pairs, start=number * pairs)
        firsts = [seed % (SEEDS - distance) for seed in seeds]
        if distance.bit_count() == 1:  # then they differ in that bit and in no other
            firsts = [seed & ~distance for seed in seeds]
        both = [*firsts, *(first + distance for first in firsts)]
        drawn = [trial.subject.draw(SETTINGS, seed, SMALL).reshape(-1) for seed in both]
        # Each is compared with the one that comes as many later as there are pairs.
        step = range(pairs, pairs + 1)
        made = two_signals(trial, np.stack(drawn))
        yield compare(trial, f"seeds {distance} apart", made, step, test, stated)


IN_ONE_PLACE = 0.9  # a correlation of a unit's masks at two seeds, some seeds apart
DROPPED_IN_ONE_PLACE = 0.4  # how far the share of a unit that is dropped is from a half


@statistical(
    "seeds-by-place",
    fault="over seeds in a row, a unit whose rate is off by 80% or more, or whose masks follow from"
    " each other",
    parts=4,
)
def seeds_by_place(trial: Trial) -> Iterator[Finding]:
    """Over successive seeds each unit is drawn anew, the first ones of a call too."""
    units = math.prod(FEW_UNITS)
    share = Largest(Proportion(LAW.rate, slack=4 * CELL), units)
    pairs = Largest(Coins((8 * CELL) ** 2), units * NEAR)
    count = NEAR + max(
        share.samples(DROPPED_IN_ONE_PLACE, trial.significance),
        pairs.samples(IN_ONE_PLACE, trial.significance),
    )
    start = trial.subject.seeds("seeds-by-place", 1)[0] % (SEEDS - count)
    for what, begin in (("seeds from 0 on", 0), (f"seeds from {start} on", start)):
        drawn = [trial.subject.draw(SETTINGS, begin + step, FEW_UNITS) for step in range(count)]
        dropped = np.stack(drawn).reshape(count, units) == 0
        margins = [Margin(f"unit of {FEW_UNITS}", dropped.sum(axis=0), np.full(units, count))]
        where = f"P(c = 0), {what}"
        yield by_place(trial, where, share, margins, DROPPED_IN_ONE_PLACE)
        signs = np.where(dropped, 1.0, -1.0)
        means = [np.mean(signs[:-apart] * signs[apart:], axis=0) for apart in range(1, NEAR + 1)]
        terms = np.repeat(count - np.arange(1, NEAR + 1), units)
        index, seen, samples = largest(pairs.test, np.concatenate(means), terms)
        apart, unit = divmod(index, units)
        about = f"masks of unit {unit} at seeds {apart + 1} apart, {what}"
        yield trial.judge(about, pairs, seen, samples, stated=IN_ONE_PLACE)


FEW_BITS = (
    *range(5), 10, 42, 100, 255, 256, 2**15, 2**16 - 1, 2**16, 2**24 - 1, 2**24, 2**30,
    0x2AAAAAAA, 0x55555555, SEEDS - 1,
)  # fmt: skip
"""Seeds that people choose, and those that leave a generator with too little to start from."""

CANCEL = 0.2


@statistical(
    "seed-bits",
    fault="at a seed of few bits a rate off by 20%, an α by a half; of four seeds that cancel"
    " a draw that 20% follows from the others",
    parts=2 * len(FEW_BITS) + 2,
)
def seed_bits(trial: Trial) -> Iterator[Finding]:
    """Seeds of few bits, as 0, draw like any other, and none draws what others add up to."""
    for seed in FEW_BITS:
        c = trial.subject.draw(SETTINGS, seed, SMALL).reshape(-1)
        yield from values_of(trial, f"seed {seed}", LAW, c)
    # A shift register is linear in its seed: where bits cancel, so do those of the draws.
    test = Coins(BIAS)
    sets = -(-test.samples(CANCEL, trial.significance) // math.prod(WIDE))
    for what, fourth in (("exclusive ors", operator.xor), ("sums", operator.add)):
        drawn = trial.subject.seeds(f"seed-bits {what}", 3 * sets)
        means = []
        for first, one, two in np.reshape(drawn, (sets, 3)) // 4:
            corners = (
                first,
                fourth(first, one),
                fourth(first, two),
                fourth(fourth(first, one), two),
            )
            masks = [trial.subject.draw(SETTINGS, int(seed), WIDE) == 0 for seed in corners]
            means.append(np.mean(np.where(functools.reduce(operator.xor, masks), -1.0, 1.0)))
        about = f"masks of four seeds, {what} of each other"
        count = sets * math.prod(WIDE)
        yield trial.judge(about, test, float(np.mean(means)), count, stated=CANCEL)


def relatives(seed: int) -> Iterator[int]:
    """Yield what a seed may be mixed up with: its bits or bytes in another order, or its sums."""
    bits, octets = f"{seed:031b}", seed.to_bytes(4, "big")
    yield from (seed ^ 2**bit for bit in range(31))
    yield from (seed + sign * apart for apart in FAR for sign in (-1, 1))
    yield from (seed * by for by in (2, 3, 5, 10, 31, 37, 64, 100, 1000, 2**16))
    yield from (seed // by for by in (2, 3, 10, 16, 256, 1000, 2**16))
    yield from (seed % by for by in (10_000, 2**16, 2**24, 10**6, 2**20 - 3))
    yield from (seed ^ mask for mask in (0xFF, 0xFFFF, 0xFFFF0000, SEEDS - 1, 0x55555555))
    yield from (int(bits[turn:] + bits[:turn], 2) for turn in (1, 8, 15, 16))
    yield int(bits[::-1], 2)
    yield int.from_bytes(octets[::-1], "big")
    yield int.from_bytes(octets[2:] + octets[:2], "big")
    yield seed ^ (seed >> 16)


@exact("many-seeds", fault="seeds of which fewer than 2¹⁶ are told apart, or two related ones")
def many_seeds(trial: Trial) -> Iterator[Finding]:
    """No two seeds give one draw, nor one mask."""
    count, few = (300, 1) if trial.quick else (1500, 3)
    drawn_seeds = trial.subject.seeds("many-seeds", count)
    related = [other for seed in drawn_seeds[:few] for other in relatives(seed)]
    small = range(4 * count // 15)
    seeds = sorted({s for s in (*drawn_seeds, *related, *small, SEEDS - 1) if 0 <= s < SEEDS})
    # Masks of so many units are alike by chance less than once in 10²⁰ runs.
    drawn = [trial.subject.draw(SETTINGS, seed, FEW_UNITS) for seed in seeds]
    yield _told_apart(trial, "draws", seeds, [c.tobytes() for c in drawn])
    yield _told_apart(trial, "masks", seeds, [(c == 0).tobytes() for c in drawn])
    if trial.quick:
        return
    for number, settings in enumerate(OTHERS):
        dtype = trial.subject.dtypes[(number + 1) % len(trial.subject.dtypes)]
        (seed,) = trial.subject.seeds(f"many-seeds {settings}", 1)
        family = sorted({s for s in (seed, *relatives(seed)) if 0 <= s < SEEDS})
        drawn = [trial.subject.draw(settings, seed, WIDE, dtype) for seed in family]
        what = f"masks, {settings}, {dtype.name},"
        yield _told_apart(trial, what, family, [(c == 0).tobytes() for c in drawn])


def _told_apart(trial: Trial, what: str, seeds: list[int], keys: list[bytes]) -> Finding:
    first: dict[bytes, int] = {}
    same = [(first.setdefault(key, s), s) for key, s in zip(keys, seeds, strict=True)]
    twice = [pair for pair in same if pair[0] != pair[1]]
    detail = f"the seeds {twice[0][0]} and {twice[0][1]} gave the same" if twice else ""
    return trial.require(f"{what} of {len(seeds)} seeds differ", not twice, detail, len(seeds))
