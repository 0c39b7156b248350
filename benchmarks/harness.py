"""Interleaved timing: all candidates in turn, many rounds, medians and their ratios.

Machines are noisy and drift, so candidates are never timed one after the other: each round calls
every candidate once, in a new random order, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple


def keep_memory() -> None:
    """Start the script again with a C library that keeps the memory it has once been given.

    By default glibc returns large blocks to the kernel, which then clears every page anew for the
    next call: 1 to 2 ns an element, the same for all candidates, and the noisiest part of all. To
    measure with that, set MALLOC_TRIM_THRESHOLD_=131072, which is glibc's default.
    """
    settings = {
        "MALLOC_MMAP_THRESHOLD_": str(4 * 10**9),
        "MALLOC_TRIM_THRESHOLD_": str(4 * 10**9),
        "MALLOC_TOP_PAD_": str(2**28),
    }
    if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
        os.environ.update(settings)
        os.execv(sys.executable, [sys.executable, *sys.argv])


class Timing(NamedTuple):
    """Seconds a call, and the ratio to the baseline with its quartiles over the rounds."""

    seconds: float
    ratio: float
    low: float
    high: float


def compare(
    candidates: dict[str, Callable[[], object]],
    baseline: str,
    *,
    rounds: int = 31,
    warm_up: int = 3,
    least: float = 0.005,
) -> dict[str, Timing]:
    """Time candidates against the one named ``baseline``.

    Each call must wait for its device. A round repeats a short call until it has taken ``least``
    seconds; ``warm_up`` calls, which compile, come before the clock.
    """
    repeats = {}
    for name, call in candidates.items():
        for _ in range(warm_up):
            call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, round(least / (time.perf_counter() - start)))
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for _ in range(rounds):
        random.shuffle(order)
        for name in order:
            call, n = candidates[name], repeats[name]
            start = time.perf_counter()
            for _ in range(n):
                call()
            seconds[name].append((time.perf_counter() - start) / n)
    timings = {}
    for name, taken in seconds.items():
        ratios = [a / b for a, b in zip(taken, seconds[baseline], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        timings[name] = Timing(statistics.median(taken), middle, low, high)
    return timings


def table(title: str, timings: dict[str, Timing], elements: int) -> str:
    """Return the timings as a Markdown table."""
    lines = [
        f"### {title}",
        "",
        "| candidate | ns/element | ratio | quartiles |",
        "|---|---|---|---|",
    ]
    for name, t in timings.items():
        per_element = t.seconds / elements * 1e9
        lines.append(f"| {name} | {per_element:.2f} | {t.ratio:.2f} | {t.low:.2f} … {t.high:.2f} |")
    return "\n".join(lines) + "\n"
