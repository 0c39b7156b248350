"""What a panel shows of some conditions: curves, scores over the rate, boxes, histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from examples import words
from examples.figures.style import Look, logarithmic, looks
from examples.sparse import load
from examples.statistics import Condition, quartiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Panel", "curves", "histogram", "score_boxes", "site_boxes", "sweep"]

Panel = Callable[["Axes"], None]
Some = Sequence[Condition]


def curves(conditions: Some, measure: str) -> Panel:
    """Show a measure over the epochs: median and inter-quartile band, the paper's median at the end.

    A band or a line ends where it is infinite, because runs diverged.
    """
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        for condition in conditions:
            low, median, high = _finite(condition.curve(measure))
            epochs = np.arange(1, len(median) + 1)
            look = own[words.layer(condition.settings)]
            style = {"color": look.color, "linestyle": look.linestyle}
            axes.plot(epochs, median, label=_label(condition), zorder=3, **style)
            axes.fill_between(epochs, low, high, color=look.color, alpha=0.2, lw=0)
            _paper(axes, condition, measure, epochs[-1], look)
        axes.set_yscale("log")
        logarithmic(axes.yaxis)
        axes.set_xlabel("epoch")
        _title(axes, conditions, measure)

    return draw


def sweep(conditions: Some, measure: str) -> Panel:
    """Show a score over the rate: medians, and bars from quartile to quartile."""
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        for label, look in own.items():
            group = [c for c in conditions if words.layer(c.settings) == label]
            rates = [c.settings.rate for c in group]
            scores = [quartiles([*c.scores(measure).values()]) for c in group]
            low, median, high = _finite(np.array(scores).T)
            style = {"color": look.color, "marker": look.marker, "linestyle": look.linestyle}
            axes.plot(rates, median, ms=4, label=label, zorder=3, **style)
            axes.vlines(rates, low, high, color=look.color, lw=1)
            for condition in group:
                _paper(axes, condition, measure, condition.settings.rate, look)
        axes.set_xlabel("drop rate")
        _title(axes, conditions, measure)

    return draw


def score_boxes(conditions: Some, measure: str) -> Panel:
    """Show the final scores of some conditions as boxes."""

    def draw(axes: Axes) -> None:
        labels = [words.layer(condition.settings) for condition in conditions]
        groups = [_known(condition.scores(measure).values()) for condition in conditions]
        _boxes(axes, groups, range(len(groups)), list(looks(conditions).values()), 0.6)
        axes.set_xticks(range(len(groups)), labels, rotation=30, ha="right")
        _title(axes, conditions, measure)

    return draw


def site_boxes(
    conditions: Some, view: str, statistic: Callable[[NDArray], Any], name: str
) -> Panel:
    """Show a statistic of the samples' mean outputs for each site: boxes over the runs."""
    sites = conditions[0].settings.plan.sites
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        for place, condition in enumerate(conditions):
            measured = [load(run.folder) for run in condition.runs if not run.diverged]
            groups = [
                [
                    statistic(one[key])
                    for one in measured
                    if (key := f"{view}/{site}/samples") in one
                ]
                for site in range(1, len(sites) + 1)
            ]
            at = np.arange(len(sites)) + (place - (len(conditions) - 1) / 2) * 0.8 / len(conditions)
            look = own[words.layer(condition.settings)]
            _boxes(axes, groups, at, [look] * len(sites), 0.6 / len(conditions))
            axes.plot([], [], "s", color=look.color, label=words.layer(condition.settings))
        axes.set_xticks(range(len(sites)), sites)
        axes.set_ylim(bottom=0)
        axes.set_title(name)

    return draw


def histogram(conditions: Some, key: str, title: str, bins: int = 40) -> Panel:
    """Show how measured values are distributed, in one run of each condition."""
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        measured = {words.layer(c.settings): load(_example(c, conditions)) for c in conditions}
        values = {label: arrays[key] for label, arrays in measured.items() if key in arrays}
        if values:
            ends = [np.quantile(array, (0.002, 0.998)) for array in values.values()]
            edges = np.linspace(min(e[0] for e in ends), max(e[1] for e in ends) + 1e-12, bins + 1)
        for label, array in values.items():
            heights, _ = np.histogram(array, edges)
            share = heights / len(array)
            axes.stairs(share, edges, color=own[label].color, label=label, lw=1.2)
        axes.set_title(title)
        axes.set_yticks([])

    return draw


def _example(condition: Condition, conditions: Some) -> Any:
    """Return the folder of the first seed that all have, or else of its own first."""
    seeds = [{run.settings.seed for run in c.runs if not run.diverged} for c in conditions]
    common = set.intersection(*seeds)
    runs = [run for run in condition.runs if run.settings.seed in common] or condition.runs
    return runs[0].folder


def _boxes(axes: Axes, groups: Any, at: Any, own: Sequence[Look], width: float) -> None:
    drawn = axes.boxplot(
        groups, positions=list(at), widths=width, patch_artist=True, manage_ticks=False
    )
    for number, look in enumerate(own):
        drawn["boxes"][number].set(facecolor=look.color, alpha=0.35, edgecolor=look.color)
        drawn["medians"][number].set(color=look.color, lw=1.6)


def _finite(values: NDArray) -> NDArray:
    return np.where(np.isfinite(values), values, np.nan)


def _known(values: Any) -> list[float]:
    return [value for value in values if np.isfinite(value)]


def _label(condition: Condition) -> str:
    count = f"n = {len(condition.runs)}"
    if condition.diverged:
        count += f", {condition.diverged} diverged"
    return f"{words.layer(condition.settings)} ({count})"


def _paper(axes: Axes, condition: Condition, measure: str, x: float, look: Look) -> None:
    finding = condition.finding(measure)
    if finding and not words.setup(condition.settings):
        style = {"color": look.color, "mfc": "white", "zorder": 4, "clip_on": False}
        axes.plot([x], [finding.value], "D", ms=5, **style)


def _title(axes: Axes, conditions: Some, measure: str) -> None:
    rmse = conditions[0].settings.plan.error == "rmse"
    axes.set_title(words.measure(measure, rmse=rmse))
