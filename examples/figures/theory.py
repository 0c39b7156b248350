"""The figures that need no runs: the beta law, and the mean coefficient."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

import quantal
from examples.figures.style import Row, compose

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["densities", "mean_coefficients"]

_ALPHAS = {0.2: "#0072B2", 0.5: "#56B4E9", 1.0: "#009E73", 2.0: "#E69F00", 5.0: "#D55E00"}


def densities() -> Figure:
    """Draw figure 1: the density of the retain probability, for two drop rates."""

    def panel(rate: float) -> object:
        def draw(axes: Axes) -> None:
            p = np.linspace(0.001, 0.999, 999)
            for alpha, color in _ALPHAS.items():
                beta = quantal.Dilution(rate, alpha).beta
                label = f"α {alpha:g}"
                axes.plot(p, stats.beta.pdf(p, alpha, beta), color=color, label=label)
            axes.set(ylim=(0, 5), xlim=(0, 1), xlabel="retain probability p")
            axes.set_title(f"drop rate {rate:g}: β = {rate / (1 - rate):g} α")

        return draw

    return compose([Row("Beta densities", [panel(0.5), panel(0.2)])], height=2.9)


def mean_coefficients() -> Figure:
    """Draw figure A1: the mean coefficient E[c] over the drop rate."""

    def draw(axes: Axes) -> None:
        rates = np.linspace(0, 0.9, 91)
        for alpha, color in _ALPHAS.items():
            means = [quantal.Dilution(rate, alpha).mean for rate in rates]
            axes.plot(rates, means, color=color, label=f"α {alpha:g}")
        axes.axhline(1, color="black", label="dropout")
        axes.set(xlabel="drop rate d", ylabel="E[c]", xlim=(0, 0.9))

    return compose([Row("Mean coefficient", [draw])], height=2.9)
