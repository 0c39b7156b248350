"""What the project asks of itself, in one place, and whether it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks import layers
from benchmarks.store import Result, Row

__all__ = ["BARS", "SPREAD", "Bar", "Verdict", "judge", "unsteady"]

SPREAD = 0.1
"""By how much two runs of a ratio may differ."""


@dataclass(frozen=True)
class Bar:
    """A figure of a suite that must not be above a limit; or below it, if ``at_least``."""

    suite: str
    title: str
    what: dict[str, Any]
    value: str
    limit: float
    at_least: bool = False
    unit: str = ""

    def holds(self, value: float) -> bool:
        """Return whether a value is on the right side."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Verdict:
    """A bar and what was measured: of several rows the worst, none if there is no result."""

    bar: Bar
    row: Row | None

    @property
    def value(self) -> float | None:
        """The figure."""
        return None if self.row is None else self.row.values[self.bar.value]

    @property
    def spread(self) -> float | None:
        """How far two runs of it differ."""
        return None if self.row is None else self.row.spread.get(self.bar.value)

    @property
    def word(self) -> str:
        """Met, missed or not measured."""
        if self.value is None:
            return "not measured"
        return "met" if self.bar.holds(self.value) else "**missed**"


@dataclass(frozen=True)
class _Layer:
    """The bars of one way of using one framework."""

    suite: str
    title: str
    mode: str
    large: float
    candidates: dict[str, str] = field(default_factory=lambda: {"": layers.QSD})


_LAYERS = (
    _Layer("torch", "PyTorch, eager", "eager", 0.5),
    _Layer("torch", "PyTorch, compiled", "compiled", 1.0),
    _Layer(
        "jax",
        "JAX, compiled",
        "compiled",
        0.4,
        {", NNX": layers.QSD, ", Linen": "linen: QSD", ", Equinox": "equinox: QSD"},
    ),
    _Layer("keras-tensorflow", "Keras on TensorFlow, graph", "graph", 1.0),
    _Layer("keras-jax", "Keras on JAX, compiled", "compiled", 0.5),
    _Layer("keras-torch", "Keras on PyTorch, eager", "eager", 0.8),
)


def _layer_bars() -> list[Bar]:
    bars = []
    for one in _LAYERS:
        for suffix, candidate in one.candidates.items():
            for size, limit in ((layers.LARGE, one.large), (layers.SMALL, 1.3)):
                shape = " × ".join(map(str, layers.shape(size)))
                what = {"group": "all", "mode": one.mode, "candidate": candidate, "size": size}
                title = f"{one.title}{suffix}, {shape}: ratio to own dropout"
                bars.append(Bar(one.suite, title, what, "ratio", limit))
        what = {"group": "slow", "candidate": layers.GAMMAS, "size": layers.LARGE}
        if one.title != "PyTorch, compiled":  # the samplers do not compile
            title = f"{one.title}: two gammas, ratio to QSD"
            bars.append(Bar(one.suite, title, what, "ratio", 20, at_least=True))
    return bars


def _training_bars() -> list[Bar]:
    names = {"torch": "PyTorch", "jax": "JAX", "keras-tensorflow": "Keras on TensorFlow"}
    return [
        Bar(
            "training",
            f"Training step in {name}, the worst of the models: ratio to own dropout",
            {"framework": framework, "candidate": "qsd"},
            "ratio",
            1.05,
        )
        for framework, name in names.items()
    ]


BARS = (
    *_layer_bars(),
    *_training_bars(),
    Bar(
        "memory",
        "PyTorch, eager: bytes per element kept for the backward pass",
        {"framework": "torch", "mode": "eager", "candidate": layers.QSD},
        "kept",
        2.0,
    ),
    Bar(
        "fixed",
        "Making a table, the slowest of the paper's settings",
        {"group": "table", "name": "table"},
        "slowest",
        0.1,
        unit="s",
    ),
    Bar(
        "schedule",
        "A new law in a step, the worst of frameworks and rates: CPU time that it adds",
        {},
        "law",
        0.005,
        unit="s",
    ),
    Bar(
        "fixed",
        "Importing quantal, beyond NumPy and SciPy",
        {"group": "fresh", "name": "quantal"},
        "import",
        0.3,
        unit="s",
    ),
    Bar(
        "fixed",
        "The conformance kit on the slowest adapter",
        {"group": "conformance"},
        "seconds",
        60,
        unit="s",
    ),
)


def judge(results: Mapping[str, Result]) -> list[Verdict]:
    """Return the verdict on every bar."""
    verdicts = []
    for bar in BARS:
        rows = results[bar.suite].find(**bar.what) if bar.suite in results else []
        worst = min if bar.at_least else max
        row = worst(rows, key=lambda row: row.values[bar.value]) if rows else None
        verdicts.append(Verdict(bar, row))
    return verdicts


def unsteady(results: Mapping[str, Result]) -> tuple[int, int]:
    """Return how many ratios of the page spread too far between runs, and how many it has."""
    spreads = [
        row.spread["ratio"]
        for result in results.values()
        for row in result.rows
        if "ratio" in row.spread
        and row.what["candidate"] != row.what["baseline"]
        # Of other precisions the page shows QSD alone.
        and (row.what.get("group") != "dtypes" or row.what["candidate"] == layers.QSD)
    ]
    return sum(spread > SPREAD for spread in spreads), len(spreads)
