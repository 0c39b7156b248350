"""Panels of what some conditions score: over the epochs, over the rate, as boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from examples import words
from examples.figures.style import PAPER, Look, logarithmic, looks
from examples.statistics import Condition, quartiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel", "boxes", "called", "curves", "score_boxes", "sweep"]

Panel = Callable[["Axes"], None]
Some = Sequence[Condition]
Looks = dict[str, Look]


def curves(conditions: Some, measure: str, own: Looks | None = None, note: str = "") -> Panel:
    """Show a measure over the epochs: median, inter-quartile band, the paper's median at the end.

    A line or a band ends where it is infinite, because runs diverged.
    """
    own = own or looks(conditions)

    def draw(axes: Axes) -> None:
        for condition in conditions:
            low, median, high = _finite(condition.curve(measure))
            epochs = np.arange(1, len(median) + 1)
            look = own[words.layer(condition.settings)]
            style: dict[str, Any] = {"color": look.color, "linestyle": look.linestyle}
            axes.plot(epochs, median, label=called(condition, count=True), zorder=3, **style)
            axes.fill_between(epochs, low, high, color=look.color, alpha=0.2, lw=0)
            _paper(axes, condition, measure, epochs[-1], look)
        logarithmic(axes)
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        _title(axes, conditions, measure, note)

    return draw


def sweep(conditions: Some, measure: str) -> Panel:
    """Show a score over the rate: medians, and bars from quartile to quartile."""
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        for label, look in own.items():
            group = [c for c in conditions if words.layer(c.settings) == label]
            rates = [c.rate for c in group]
            scores = [quartiles([*c.scores(measure).values()]) for c in group]
            low, median, high = _finite(np.array(scores).T)
            style: dict[str, Any] = {"color": look.color, "linestyle": look.linestyle}
            axes.plot(rates, median, marker=look.marker, ms=4, label=label, zorder=3, **style)
            axes.vlines(rates, low, high, color=look.color, lw=1)
            for condition in group:
                _paper(axes, condition, measure, condition.rate, look)
                _diverged(axes, condition, look)
        axes.set_xlabel("drop rate")
        _title(axes, conditions, measure)

    return draw


def score_boxes(conditions: Some, measure: str) -> Panel:
    """Show the final scores of some conditions as boxes."""

    def draw(axes: Axes) -> None:
        labels = [called(condition) for condition in conditions]
        groups = [_known(condition.scores(measure).values()) for condition in conditions]
        boxes(axes, groups, range(len(groups)), list(looks(conditions).values()), 0.6)
        axes.set_xticks(range(len(groups)), labels, rotation=30, ha="right")
        _title(axes, conditions, measure)

    return draw


def boxes(axes: Axes, groups: Any, at: Any, own: Sequence[Look], width: float) -> None:
    """Draw a box for each group of numbers, in its look."""
    drawn = axes.boxplot(
        groups,
        positions=list(at),
        widths=width,
        patch_artist=True,
        manage_ticks=False,
        flierprops={"marker": ".", "markersize": 4},
    )
    for number, look in enumerate(own):
        drawn["boxes"][number].set(facecolor=look.color, alpha=0.35, edgecolor=look.color)
        drawn["medians"][number].set(color=look.color, lw=1.6)


def _finite(values: NDArray) -> NDArray:
    return np.where(np.isfinite(values), values, np.nan)


def _known(values: Any) -> list[float]:
    return [value for value in values if np.isfinite(value)]


def called(condition: Condition, *, count: bool = False) -> str:
    """Return the name of a condition in a legend; runs that diverged are always counted."""
    notes = [f"n = {len(condition.runs)}"] if count else []
    if condition.diverged:
        notes.append(f"{condition.diverged} diverged")
    return words.layer(condition.settings) + (f" ({', '.join(notes)})" if notes else "")


def _paper(axes: Axes, condition: Condition, measure: str, x: float, look: Look) -> None:
    finding = condition.finding(measure)
    if finding and not words.setup(condition.settings):
        style: dict[str, Any] = {"mfc": "white", "ms": 5, "linestyle": "none"}
        axes.plot(x, finding.value, "D", color=look.color, zorder=4, clip_on=False, **style)
        axes.plot([], [], "D", color="0.5", label=PAPER, **style)


def _diverged(axes: Axes, condition: Condition, look: Look) -> None:
    if condition.diverged:
        text = f"{condition.diverged} of {len(condition.runs)} diverged"
        style: dict[str, Any] = {"color": look.color, "fontsize": 6, "rotation": 90}
        top = (condition.rate, 1)
        axes.annotate(text, top, xycoords=("data", "axes fraction"), va="top", ha="right", **style)


def _title(axes: Axes, conditions: Some, measure: str, note: str = "") -> None:
    rmse = conditions[0].plan.error == "rmse"
    axes.set_title(words.measure(measure, rmse=rmse) + note)
