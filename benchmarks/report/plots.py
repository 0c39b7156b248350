"""Plots of the page, as PNG."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import layers
from benchmarks.law import BETA, GAMMAS, OURS
from benchmarks.store import Result

__all__ = ["growth", "law"]

STYLES: dict[str, dict[str, Any]] = {
    layers.DROPOUT: {"color": "tab:orange", "marker": "s"},
    layers.QSD: {"color": "tab:blue", "marker": "o"},
    layers.KEY: {"color": "tab:green", "marker": "^"},
    layers.SHARED_P: {"color": "tab:purple", "marker": "v"},
    layers.MULTIPLY: {"color": "tab:gray", "marker": "."},
    layers.GAMMAS: {"color": "tab:red", "marker": "x"},
    layers.BETA: {"color": "tab:brown", "marker": "+"},
}
_BYTES = 16  # an element of input, output, upstream gradient and gradient in float32


def growth(result: Result, path: Path) -> None:
    """Draw the cost of an element against the number of elements, a panel for each mode."""
    smallest = min(row.what["size"] for row in result.rows)
    modes = list(dict.fromkeys(row.what["mode"] for row in result.find(group="all", size=smallest)))
    figure = _figure(4.8 * len(modes), 3.8)
    for number, mode in enumerate(modes, 1):
        axes = figure.add_subplot(1, len(modes), number)
        for name, style in STYLES.items():
            group = "slow" if name in (layers.GAMMAS, layers.BETA) else "all"
            rows = result.find(group=group, mode=mode, candidate=name)
            if rows:
                sizes = [row.what["size"] for row in rows]
                axes.plot(sizes, [row.values["ns"] for row in rows], label=name, **style)
        _caches(axes, result)
        axes.set(xscale="log", yscale="log", title=f"{result.suite}, {mode}")
        passes = "forward" if result.suite == "numpy" else "forward and backward"
        axes.set(xlabel="elements", ylabel=f"ns an element, {passes}")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        if number == 1:  # the others have the same lines, or fewer
            figure.legend(loc="outside lower center", ncols=2 * len(modes), fontsize=7)
    _save(figure, path)


def _caches(axes: Axes, result: Result) -> None:
    """Mark where the arrays of a step outgrow a cache."""
    for cache in result.header["caches"]:
        level, size, unit = re.findall(r"(L\d) (\d+)([KM])", cache)[0]
        elements = int(size) * {"K": 2**10, "M": 2**20}[unit] / _BYTES
        axes.axvline(elements, color="black", linewidth=0.6, linestyle=":")
        axes.text(elements, 0.98, level, fontsize=7, va="top", transform=axes.get_xaxis_transform())


def law(result: Result, floor: float, path: Path) -> None:
    """Draw the distance to the law against α, a panel for each way of drawing."""
    figure = _figure(12, 3.6)
    rate = result.rows[0].what["rate"]
    for number, sampler in enumerate((OURS, GAMMAS, BETA), 1):
        axes = figure.add_subplot(1, 3, number)
        for framework in dict.fromkeys(row.what["framework"] for row in result.rows):
            rows = result.find(framework=framework, sampler=sampler, rate=rate)
            distances = [max(row.values["distance"], 1e-4) for row in rows]
            axes.plot([row.what["alpha"] for row in rows], distances, "o-", label=framework, ms=3)
        axes.axhline(floor, color="black", linestyle=":", linewidth=1)
        axes.set(xscale="log", yscale="log", ylim=(1e-4, 1.2), title=f"{sampler}, rate {rate}")
        axes.set(xlabel="α", ylabel="Kolmogorov distance" if number == 1 else "")
        axes.grid(alpha=0.3)
    axes.legend(fontsize=7)
    _save(figure, path)


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Figure, path: Path) -> None:
    # Without the version of matplotlib, so that the same figures give the same file.
    figure.savefig(path, dpi=110, metadata={"Software": None})
