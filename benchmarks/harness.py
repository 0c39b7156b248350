"""Interleaved timing: all candidates in turn, many rounds, medians and their ratios.

Machines are noisy and drift, so candidates are never timed one after the other: each round calls
every candidate once, in a new random order, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple


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
