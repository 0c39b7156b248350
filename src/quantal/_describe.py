"""A law for people: a table of its numbers, and a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from quantal._errors import require
from quantal.dilution import Dilution

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["describe", "plot"]

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


def describe(law: Dilution) -> str:
    """Return the law as a table.

    Examples
    --------
    >>> print(describe(Dilution(0.5, 1.0)))
    Dilution(rate=0.5, alpha=1.0)
      beta                  1
      drop probability      0.5
      mean of c             1.33333
      sd of c               1.49071
      largest c             4
      quantiles of c
        5%                  0
        25%                 0
        50%                 0
        75%                 2.82843
        95%                 3.79473
      quantiles of c among the kept
        5%                  0.894427
        25%                 2
        50%                 2.82843
        75%                 3.4641
        95%                 3.89872
    """
    rows: list[tuple[str, float | None]] = [
        ("beta", law.beta),
        ("drop probability", law.rate),
        ("mean of c", law.mean),
        ("sd of c", law.std),
        ("largest c", law.ceiling),
        ("quantiles of c", None),
    ]
    rows += [(f"  {q:.0%}", float(law.ppf(q))) for q in _QUANTILES]
    rows.append(("quantiles of c among the kept", None))
    rows += [(f"  {q:.0%}", float(law.ppf(law.rate + law.retain * q))) for q in _QUANTILES]
    lines = [f"  {n:<22}{v:.6g}" if v is not None else f"  {n}" for n, v in rows]
    return "\n".join([repr(law), *lines])


def plot(law: Dilution, path: str) -> str:
    """Draw the retain probability p, the size q and the coefficient c to a picture file.

    Returns its path: a name without a kind of picture is that of a PNG.
    """
    require("matplotlib", "plot")
    from matplotlib.figure import Figure

    path = path if Path(path).suffix else f"{path}.png"

    figure = Figure(figsize=(10, 3), layout="constrained")
    panels = figure.subplots(1, 3)
    figure.suptitle(repr(law))
    beta = Dilution(law.rate, law.alpha, vary="q")._beta_parameters  # that of p itself

    def draw(axes: Axes, title: str, edges: ArrayLike, mass: ArrayLike) -> None:
        axes.stairs(mass, edges, fill=True, alpha=0.6)
        axes.set_xlabel(title)
        axes.set_ylim(bottom=0)

    edges = np.linspace(0, 1, 61)
    cdf = special.betainc(*beta, edges) if beta else (edges >= law.retain).astype(float)
    varies_q = law.vary != "p" and beta
    size_edges = edges * (1 / law.retain**2 if varies_q else 2 / max(law.retain, 1e-9))
    size_cdf = cdf if varies_q else (size_edges >= 1 / max(law.retain, 1e-9)).astype(float)
    draw(panels[0], "retain probability p", edges, np.diff(cdf))
    draw(panels[1], "size q", size_edges, np.diff(size_cdf))
    c_edges = np.linspace(0, max(law.ceiling, 1) * 1.05, 61)
    draw(panels[2], "coefficient c", c_edges, np.diff(law.cdf(c_edges)))
    panels[2].plot([0, 0], [0, law.rate], lw=4, color="C3", label=f"dropped: {law.rate:g}")
    panels[2].axvline(law.mean, ls="--", color="k", lw=1, label=f"mean {law.mean:.3g}")
    panels[2].legend()
    panels[0].set_ylabel("probability")
    figure.savefig(path, dpi=120)
    return path
