"""Panels of what some conditions score: over the epochs, over the rate, as boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from examples import words
from examples.comparison import Condition, quartiles
from examples.figures.style import PAPER, Look, logarithmic, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel", "boxes", "called", "curves", "score_boxes", "sweep"]

Panel = Callable[["Axes"], None]
Some = Sequence[Condition]
Looks = dict[str, Look]

_FEW = 3  # epochs that are shown as points


def curves(
    conditions: Some,
    measure: str,
    own: Looks | None = None,
    note: str = "",
    *,
    last: float = 1.0,
) -> Panel:
    """Show a measure over the epochs: median, inter-quartile band, the paper's median at the end.

    A line or a band ends where it is infinite, because runs diverged. With ``last``, only that
    share of the epochs is shown, the last ones, close up.
    """
    own = own or looks(conditions)

    def draw(axes: Axes) -> None:
        for place, condition in enumerate(conditions):
            curve = _finite(condition.curve(measure))
            first = curve.shape[1] - max(1, round(last * curve.shape[1]))
            low, median, high = curve[:, first:]
            epochs: NDArray = np.arange(first + 1, first + 1 + len(median))
            look = own[words.layer(condition.settings)]
            style: dict[str, Any] = {"color": look.color, "linestyle": look.linestyle}
            if len(epochs) <= _FEW:  # hardly a line: points side by side
                style |= {"marker": look.marker, "ms": 5}
                axes.set_xticks(epochs)
                epochs = epochs + (place - (len(conditions) - 1) / 2) * 0.5 / len(conditions)
                axes.vlines(epochs, low, high, color=look.color, lw=1)
            axes.plot(epochs, median, label=called(condition, count=True), zorder=3, **style)
            axes.fill_between(epochs, low, high, color=look.color, alpha=0.2, lw=0)
            _paper(axes, condition, measure, epochs[-1], look)
            if len(epochs) <= _FEW:
                axes.set_xlim(first + 0.5, first + len(epochs) + 0.5)
            else:
                axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        if last == 1:
            logarithmic(axes)
        axes.set_xlabel("epoch")
        _title(axes, conditions, measure, note if last == 1 else f"{note}, last epochs")

    return draw


def sweep(conditions: Some, measure: str) -> Panel:
    """Show a score over the rate: medians, and bars from quartile to quartile.

    Every line starts at rate 0 with the runs that have no dropout: there all layers are the same.
    """
    own = looks(conditions)
    nothing = [c for c in conditions if c.layer == "none"]

    def draw(axes: Axes) -> None:
        for label, look in own.items():
            group = [c for c in conditions if words.layer(c.settings) == label]
            shown = group if group[0].layer == "none" else [*nothing, *group]
            rates = [c.rate for c in shown]
            scores = [quartiles([*c.scores(measure).values()]) for c in shown]
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
        axes.set_xticks(
            range(len(groups)), labels, rotation=40, ha="right", rotation_mode="anchor", fontsize=7
        )
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
