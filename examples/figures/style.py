"""One look for all figures: sizes, colours that colour-blind people can tell apart, files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from examples import words
from examples.comparison import Condition

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLORS", "PAPER", "Look", "Row", "compose", "logarithmic", "looks", "save"]

_STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.92",
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "svg.fonttype": "none",
    "svg.hashsalt": "quantal",  # the same file for the same runs
}
# The palette of Okabe and Ito: for each layer a colour for its smallest α, the next, and so on.
COLORS = {
    "none": ("#999999",),
    "dropout": ("#000000",),
    "qsd": ("#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7"),
    "dist-p": ("#D55E00", "#E69F00"),
    "dist-q": ("#CC79A7", "#882255"),
}
PAPER = "paper's median"
_MARKERS = {"none": "x", "dropout": "o", "qsd": "s^DvpP", "dist-p": "<", "dist-q": ">"}


@dataclass(frozen=True)
class Look:
    """How a layer is drawn, in all panels of a row."""

    color: str
    marker: str
    linestyle: str = "-"


def looks(conditions: Sequence[Condition]) -> dict[str, Look]:
    """Give each layer its look; QSD with the smallest α is always the same blue."""
    several: dict[str, set[tuple[float, bool, bool]]] = {}
    for condition in conditions:
        several.setdefault(condition.layer, set()).add(_parameters(condition))
    found: dict[str, Look] = {}
    for condition in conditions:
        layer = condition.layer
        place = sorted(several[layer]).index(_parameters(condition))
        colors, markers = COLORS[layer], _MARKERS[layer]
        # Where there are more of a layer than colours, these come again, dashed.
        dashed = layer == "none" or place >= len(colors)
        found[words.layer(condition.settings)] = Look(
            colors[place % len(colors)], markers[place % len(markers)], "--" if dashed else "-"
        )
    return found


def _parameters(condition: Condition) -> tuple[float, bool, bool]:
    return condition.alpha, condition.settings.unit_mean, condition.settings.shared_p


@dataclass(frozen=True)
class Row:
    """Panels side by side under one title, with one legend."""

    title: str
    panels: Sequence[Callable[[Axes], None]]


def compose(rows: Sequence[Row], *, height: float = 2.5) -> Figure:
    """Draw rows of panels below each other."""
    with matplotlib.rc_context(_STYLE):
        most = max(len(row.panels) for row in rows)
        size = (1.6 + (2.9 if most < 4 else 2.1) * most, height * len(rows))
        figure = Figure(figsize=size, layout="constrained")
        for part, row in zip(figure.subfigures(len(rows), squeeze=False)[:, 0], rows, strict=True):
            part.suptitle(row.title, x=0.01, ha="left", fontweight="bold", fontsize=10)
            panels = part.subplots(1, len(row.panels), squeeze=False)[0]
            for axes, draw in zip(panels, row.panels, strict=True):
                draw(axes)
            _legend(part, panels)
    return figure


def _legend(part: Any, panels: Sequence[Axes]) -> None:
    """Put one legend for all panels on the right, each label once."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if PAPER in found:  # comes last
        found[PAPER] = found.pop(PAPER)
    if found:
        part.legend(found.values(), found.keys(), loc="outside right upper")


def logarithmic(axes: Axes) -> None:
    """Make y logarithmic, with plain numbers, if what is drawn ranges widely and is above 0."""
    low, high = axes.dataLim.intervaly
    if not 0 < 3 * low < high:
        return
    decades = log10(high / low)
    subs = (1, 1.5, 2, 3, 5, 7) if decades < 0.9 else (1, 2, 5) if decades < 2.2 else (1,)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def save(figure: Figure, *paths: Path) -> None:
    """Write a figure to files of the formats that their names say."""
    with matplotlib.rc_context(_STYLE):
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # it is laid out now, which takes longer than to draw it
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else {})
