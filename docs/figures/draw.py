"""Draw the pictures of the pages: ``python docs/figures/draw.py``.

They have no ground of their own: colours are of middle lightness, so that they can be read on
white and on black.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from quantal import Dilution, dilute, key

HERE = Path(__file__).parent
GREY, BLUE, ORANGE, GREEN, PURPLE = "#808080", "#2b7bba", "#c8641e", "#2b8a5f", "#a45fae"
STYLE = {
    "font.size": 11,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlesize": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.transparent": True,
    "svg.fonttype": "path",
    "svg.hashsalt": "quantal",
}
ALPHAS = {0.2: BLUE, 1.0: GREEN, 5.0: ORANGE}


def what_qsd_is() -> Figure:
    """Draw the retain probabilities, and what units are multiplied by, beside dropout."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1))
    rate, alpha = 0.5, 1.5
    law = Dilution(rate, alpha)
    p = np.linspace(0, 1, 200)
    left.plot(p, stats.beta.pdf(p, law.alpha, law.beta), color=BLUE)
    left.axvline(law.retain, color=ORANGE)
    left.annotate("QSD", (0.06, 1.2), color=BLUE)
    left.annotate("dropout", (0.53, 1.62), color=ORANGE)
    left.set(title="1. Draw a retain probability p", xlabel="p of a unit", ylabel="density")
    left.set(xlim=(0, 1), ylim=(0, 1.8), yticks=[])
    shape, units = (6, 8), np.ones((6, 8))
    grids = {
        "2. Dropout: kept units ×2": (dilute(units, rate, np.inf, rng=key(1)), ORANGE, middle),
        "2. QSD: kept units ×4p": (dilute(units, rate, alpha, rng=key(1)), BLUE, right),
    }
    for title, (coefficients, color, axes) in grids.items():
        rows, columns = np.indices(shape)
        kept = coefficients > 0
        axes.scatter(columns[~kept], rows[~kept], s=6, color=GREY)
        areas = 55 * coefficients[kept]
        axes.scatter(columns[kept], rows[kept], s=areas, color=color, linewidths=0)
        axes.set(title=title, xlim=(-0.7, 7.7), ylim=(-0.7, 5.7), aspect="equal")
        axes.set(xlabel="area of a unit: its coefficient", xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
    return figure


def alpha() -> Figure:
    """Draw what share of the units has at most which coefficient, for some α."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    for axes, rate in zip(figure.subplots(1, 2, sharey=True), (0.2, 0.5), strict=True):
        u = np.linspace(0, 1, 2001)
        for value, color in ALPHAS.items():
            axes.plot(u, Dilution(rate, value).ppf(u), color=color, label=f"α = {value:g}")
        axes.plot(u, Dilution(rate, np.inf).ppf(u), color=GREY, ls="--", label="dropout")
        axes.set(title=f"rate {rate:g}", xlabel="share of the units", xlim=(0, 1), ylim=(0, 4.1))
    figure.axes[0].set_ylabel("coefficient at most")
    figure.axes[0].legend(loc="upper left")
    return figure


def gain() -> Figure:
    """Draw the mean gain over the rate, and through several sites."""
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    rates, sites = np.linspace(0, 0.8, 200), np.arange(1, 9)
    for value, color in ALPHAS.items():
        means = [Dilution(rate, value).mean for rate in rates]
        left.plot(rates, means, color=color, label=f"α = {value:g}")
        through = Dilution(0.2, value).mean ** sites
        right.plot(sites, through, "o-", color=color, label=f"α = {value:g}")
    for axes in (left, right):
        axes.axhline(1, color=GREY, ls="--", label="dropout")
    left.set(title="at one site", xlabel="rate", ylabel="mean gain", xlim=(0, 0.8), ylim=(0.9, 3))
    right.set(title="at most, through sites of rate 0.2", xlabel="sites in a row", ylabel="gain")
    left.legend()
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "what-qsd-is": what_qsd_is,
    "alpha": alpha,
    "gain": gain,
}


def draw(folder: Path) -> None:
    """Draw all of them."""
    with matplotlib.rc_context(STYLE):
        for name, make in FIGURES.items():
            # Without the date and the version, the same figure is the same file.
            nothing = {"Date": None, "Creator": None}
            make().savefig(folder / f"{name}.svg", metadata=nothing)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
