"""What is compared in every framework: layers, sizes, dtypes, and for how long.

A framework's own file has the candidates and says what a step of them is; this one knows none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.harness import Rounds, Task, timed
from benchmarks.store import Row

__all__ = [
    "ALPHA", "BETA", "DROPOUT", "GAMMAS", "KEY", "MAPS", "MULTIPLY", "OWN_MAPS", "QSD", "RATE",
    "SHARED_C", "SHARED_P", "Candidate", "Framework", "measure", "shape",
]  # fmt: skip

RATE, ALPHA = 0.2, 0.2

# Names that mean the same in every framework.
DROPOUT = "own dropout"
MULTIPLY = "no layer: one multiply"
QSD = "QSD"
KEY = "QSD, portable key"
SHARED_C = "QSD, broadcast_dims=0"
SHARED_P = "QSD, p_broadcast_dims=0"
OWN_MAPS = "own spatial dropout"
MAPS = "QSD, spatial"
GAMMAS = "the paper's two gammas"
BETA = "own Beta sampler"
MAIN = (DROPOUT, QSD, MULTIPLY)

SIZES = tuple(2**n for n in range(8, 25, 2))
# Those of the bars: 64 × 256 and 1024 × 4096.
SMALL, LARGE = CHOSEN = (2**14, 2**22)


@dataclass(frozen=True)
class Candidate:
    """A layer, by a name, with the name of its baseline.

    ``maps``: it acts on feature maps. ``slow``: so slow that it is compared apart, with QSD.
    """

    name: str
    layer: Any
    baseline: str = DROPOUT
    maps: bool = False
    slow: bool = False


class Framework(Protocol):
    """What a framework's file provides."""

    @property
    def modes(self) -> tuple[str, ...]:
        """The ways in which code runs, the usual one first."""

    @property
    def usual(self) -> int:
        """How many of them are looked at closely; the others at two sizes only."""

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Beside float32."""

    @property
    def largest_slow(self) -> int:
        """The size from which on one call of the slow candidates takes seconds."""

    def dropout(self) -> Any:
        """Return the framework's own layer."""

    def qsd(self) -> Any:
        """Return the layer in its place."""

    def candidates(self, mode: str) -> list[Candidate]:
        """Return the layers; the baseline of slow ones is QSD."""

    def step(
        self, layer: Any, shape: tuple[int, ...], dtype: str, mode: str
    ) -> Callable[[], object]:
        """Return a call of one forward and backward pass that waits for its results."""


def shape(size: int, maps: bool = False) -> tuple[int, ...]:
    """Return the shape with so many elements; maps have their channels second.

    Examples
    --------
    >>> shape(2**22), shape(2**14), shape(2**22, maps=True)
    ((1024, 4096), (64, 256), (16, 64, 64, 64))
    """
    power = size.bit_length() - 1
    if maps:
        side = 2 ** ((power - 2) // 4 + 1)
        return size // side**3, side, side, side
    return 2 ** (power // 2 - 1), size // 2 ** (power // 2 - 1)


def seconds(size: int) -> float:
    """Return how long to compare so that two runs agree; longer where there is a bar."""
    return {SMALL: 1.5, LARGE: 6.0}.get(size, 1.0 if size < LARGE else 5.0)


def measure(framework: Framework, task: Task) -> list[Row]:
    """Measure the cost of layers in all ways that the page shows."""
    rows: list[Row] = []

    def add(group: str, chosen: list[Candidate], size: int, dtype: str, rounds: Rounds) -> None:
        steps = {
            one.name: framework.step(one.layer, shape(size, one.maps), dtype, mode)
            for one in chosen
        }
        baselines = {one.name: one.baseline for one in chosen}
        for _ in range(3):  # also where there is no warm-up for the slow ones
            steps[QSD]()
        what = {"group": group, "memory": task.memory, "mode": mode, "dtype": dtype, "size": size}
        rows.extend(timed(what, steps, baselines, rounds))

    for mode in framework.modes:
        every = framework.candidates(mode)
        main = [one for one in every if one.name in MAIN]
        usual = mode in framework.modes[: framework.usual]
        if task.quick and mode != framework.modes[0]:
            every, usual = main, False
        fast = [one for one in every if not one.slow]
        if task.memory == "default":
            own = [one for one in fast if one.name != KEY and not one.maps]
            for size in reversed(_few(CHOSEN, task)) if usual else ():
                add("default", own, size, "float32", task.rounds(5))
            continue
        # The largest first: torch compiles once for all sizes, and if it meets a small one first,
        # then for one thread.
        for size in reversed(_few(SIZES if usual else CHOSEN, task)):
            add("all", fast, size, "float32", task.rounds(seconds(size)))
        for dtype in framework.dtypes[: 1 if task.quick else None] if usual else ():
            for size in reversed(_few(CHOSEN, task)):
                add("dtypes", main, size, dtype, task.rounds(seconds(size) / 2))
        slow = [one for one in every if one.slow]
        against = [Candidate(QSD, one.layer, QSD) for one in main if one.name == QSD]
        for size in _few(SIZES, task) if slow else ():
            if size < framework.largest_slow:
                add("slow", against + slow, size, "float32", task.rounds(1.5, fewest=3, warm_up=1))
            elif size == framework.largest_slow and task.process == 0:
                once = task.rounds(0, fewest=1, most=1, least=1.0, warm_up=0)
                add("slow", against + slow, size, "float32", once)
    return rows


def _few(sizes: tuple[int, ...], task: Task) -> tuple[int, ...]:
    return sizes[:1] if task.quick else sizes
