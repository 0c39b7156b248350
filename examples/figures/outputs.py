"""Panels of what was measured after training: outputs of the sites, and weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from examples import words
from examples.comparison import Condition
from examples.figures.panels import Panel, boxes, called
from examples.figures.style import looks
from examples.summaries import load

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["histogram", "site_boxes"]

Some = Sequence[Condition]


def site_boxes(conditions: Some, view: str, index: int, name: str) -> Panel:
    """Show the mean of the samples' mean outputs (0), or their spread (1): boxes over the runs."""
    sites = conditions[0].plan.sites
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        for place, condition in enumerate(conditions):
            measured = [load(run.folder) for run in condition.runs if not run.diverged]
            groups = [
                [
                    one[key][index]
                    for one in measured
                    if (key := f"{view}/{site}/samples/spread") in one
                ]
                for site in range(1, len(sites) + 1)
            ]
            at = np.arange(len(sites)) + (place - (len(conditions) - 1) / 2) * 0.8 / len(conditions)
            look = own[words.layer(condition.settings)]
            boxes(axes, groups, at, [look] * len(sites), 0.6 / len(conditions))
            axes.plot([], [], "s", color=look.color, label=called(condition))
        axes.set_xticks(range(len(sites)), sites)
        axes.set_ylim(bottom=0)
        axes.set_title(name)

    return draw


def histogram(conditions: Some, key: str, title: str, bins: int = 30) -> Panel:
    """Show how measured values are distributed, in one run of each condition."""
    own = looks(conditions)

    def draw(axes: Axes) -> None:
        measured = [
            (c, load(_example(c, conditions))) for c in conditions if c.diverged < len(c.runs)
        ]
        values = [(c, arrays[key].astype(float)) for c, arrays in measured if key in arrays]
        ends = np.array([np.quantile(array, (0.002, 0.998)) for _, array in values])
        for condition, array in values:
            heights, edges = np.histogram(array, bins, (ends[:, 0].min(), ends[:, 1].max()))
            color = own[words.layer(condition.settings)].color
            share = heights / len(array)
            axes.stairs(share, edges, lw=1.2, color=color, label=called(condition))
            axes.stairs(share, edges, fill=True, alpha=0.12, color=color)
        axes.set_title(title)
        axes.set_yticks([])

    return draw


def _example(condition: Condition, conditions: Some) -> Path:
    """Return the folder of the first seed that all have, or else of its own first."""
    seeds = [{run.settings.seed for run in c.runs if not run.diverged} for c in conditions]
    common = set.intersection(*seeds)
    runs = [run for run in condition.runs if not run.diverged]
    return next((run for run in runs if run.settings.seed in common), runs[0]).folder
