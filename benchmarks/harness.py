"""Interleaved timing: all candidates in turn, many rounds, medians and their ratios.

Machines are noisy and drift, so candidates are never timed one after the other: each round calls
every candidate once, in a new random order, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from typing import Any

from benchmarks.store import Row

__all__ = ["Rounds", "Task", "Timing", "compare", "timed"]

Candidates = Mapping[str, Callable[[], object]]


@dataclass(frozen=True)
class Rounds:
    """How long to measure.

    A comparison ends when the standard error of each ratio is below ``error`` of it, or after
    ``seconds``, or after ``most`` rounds; not before the ``fewest``. A round repeats a short call
    until it has taken ``least`` seconds; ``warm_up`` calls, which compile, come before the clock.
    """

    seconds: float
    fewest: int = 9
    most: int = 201
    error: float = 0.015
    least: float = 0.003
    warm_up: int = 3


@dataclass(frozen=True)
class Task:
    """What one process is to measure.

    ``subject`` chooses within a suite of several frameworks; ``quick`` is for tests, which want
    every line run and believe no figure; ``device`` is cpu or gpu; ``run`` and ``process`` count
    those that do the same.
    """

    subject: str = ""
    quick: bool = False
    memory: str = "kept"
    device: str = "cpu"
    run: int = 0
    process: int = 0

    def rounds(self, seconds: float, **other: Any) -> Rounds:
        """Return the rounds of a comparison that may take so long."""
        if self.quick:
            return Rounds(0, fewest=2, most=2, least=0, warm_up=1)
        return Rounds(seconds, **other)


@dataclass(frozen=True)
class Timing:
    """Seconds a call; the ratio to the baseline with its quartiles over the rounds."""

    seconds: float
    ratio: float
    low: float
    high: float
    rounds: int

    @property
    def error(self) -> float:
        """The standard error of the ratio, relative: that of a median, by the quartiles."""
        return 0.93 * (self.high - self.low) / sqrt(self.rounds) / self.ratio


def compare(
    candidates: Candidates,
    baselines: Mapping[str, str],
    rounds: Rounds,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time candidates, each against its baseline, which is one of them.

    Every call must wait for its device.
    """
    repeats = _repeats(candidates, baselines, rounds, clock)
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    shuffle = random.Random(0).shuffle
    start, done = clock(), 0

    def results() -> dict[str, Timing]:
        return {name: _timing(taken, seconds[baselines[name]]) for name, taken in seconds.items()}

    with _no_collection():
        while done < rounds.most:
            if done >= rounds.fewest and clock() - start >= rounds.seconds:
                break
            # Looked at now and then: a look takes time, and many looks would find a lucky moment.
            look = done > 0 and done % rounds.fewest == 0
            if look and all(timing.error <= rounds.error for timing in results().values()):
                break
            shuffle(order)
            for name in order:
                seconds[name].append(_time(candidates[name], repeats[name], clock))
            done += 1
    return results()


def timed(
    what: dict[str, Any],
    candidates: Candidates,
    baselines: Mapping[str, str],
    rounds: Rounds,
) -> list[Row]:
    """Compare, and return a row for each candidate; times are in ns for each of its ``size``."""
    rows = []
    for name, t in compare(candidates, baselines, rounds).items():
        ns = t.seconds / what["size"] * 1e9
        values = {"ns": ns, "ratio": t.ratio, "low": t.low, "high": t.high, "rounds": t.rounds}
        rows.append(Row(what | {"candidate": name, "baseline": baselines[name]}, values))
    return rows


def _repeats(
    candidates: Candidates,
    baselines: Mapping[str, str],
    rounds: Rounds,
    clock: Callable[[], float],
) -> dict[str, int]:
    """Warm up, and return how often to call each candidate in a round."""
    repeats = {}
    for name, call in candidates.items():
        for _ in range(rounds.warm_up):
            call()
        repeats[name] = 1
        # In a single round, one call of what is slow is all that is asked for.
        if rounds.most > 1 or name in baselines.values():
            repeats[name] = max(1, round(rounds.least / max(_time(call, 1, clock), 1e-9)))
    return repeats


def _timing(taken: list[float], base: list[float]) -> Timing:
    low, middle, high = _quartiles([own / other for own, other in zip(taken, base, strict=True)])
    return Timing(statistics.median(taken), middle, low, high, len(taken))


def _time(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _quartiles(values: list[float]) -> tuple[float, float, float]:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep Python's garbage collector out of the rounds."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
