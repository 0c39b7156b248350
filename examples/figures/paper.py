"""The paper's figures of runs, each as rows of panels; no rows if there are no runs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from examples.figures import panels
from examples.figures.style import Row
from examples.sparse import VIEWS
from examples.statistics import Condition, measures

__all__ = ["FIGURES", "learning"]

Some = Sequence[Condition]

_COMPARED = ("none", "dropout", "qsd")
_ABLATED = ("dropout", "dist-p", "dist-q", "qsd")
_CLASSES = ("train_cost", "test_cost", "test_error")


def learning(conditions: Some, shown: Sequence[str] = _CLASSES) -> list[Row]:
    """Return learning curves at one rate."""
    own = _at_one_rate(conditions, _COMPARED)
    if not own:
        return []
    plan, rate = own[0].settings.plan, own[-1].settings.rate
    return [Row(f"{plan.title}, rate {rate:g}", [panels.curves(own, name) for name in shown])]


def _learning_and_sweep(conditions: Some) -> list[Row]:
    own = [c for c in conditions if c.settings.layer in _COMPARED]
    rows = learning(own)
    if len({c.settings.rate for c in own}) > 1:
        plan = own[0].settings.plan
        shown = [panels.sweep(own, measure) for measure in measures(plan)]
        rows.append(Row(f"{plan.title}, after training", shown))
    return rows


def _ablation(conditions: Some) -> list[Row]:
    """Return the curves of QSD and its ablations, a panel for each α that was ablated."""
    own = _at_one_rate(conditions, _ABLATED)
    ablated = sorted({c.settings.alpha for c in own if c.settings.layer.startswith("dist")})
    if not ablated:
        return []
    groups = [_with_alpha(own, alpha) for alpha in ablated]
    shown = [panels.curves(group, "test_cost") for group in groups]
    boxed = _with_alpha(own, *ablated)
    return [Row("A: ablation", [*shown, panels.score_boxes(boxed, "test_cost")])]


def _distributions(conditions: Some) -> list[Row]:
    """Return figure 3: the ablation, and histograms of outputs and weights."""
    own = _at_one_alpha(conditions)
    if not own:
        return []
    sites = list(enumerate(own[0].settings.plan.sites, 1))
    rows = _ablation(conditions)
    for view, title in VIEWS.items():
        shown = [
            panels.histogram(own, f"{view}/{site}/{over}", f"{name}, {over}")
            for over in ("units", "samples")
            for site, name in sites
        ]
        rows.append(Row(f"{title}; mean outputs of units and of samples", shown))
    shown = [
        panels.histogram(own, f"weights/dense{site}/{part}", f"dense {site}, {title}")
        for part, title in (("kernel", "weights"), ("bias", "biases"))
        for site, _ in sites
    ]
    return [*rows, Row("E: trained weights and biases", shown)]


def _spreads(conditions: Some) -> list[Row]:
    """Return figure A2: the ablation, and the outputs of all runs as boxes."""
    own = _at_one_alpha(conditions)
    if not own:
        return []
    rows = _ablation(conditions)
    for view, title in VIEWS.items():
        mean = panels.site_boxes(own, view, np.mean, "mean over samples")
        spread = panels.site_boxes(own, view, np.std, "standard deviation over samples")
        rows.append(Row(title, [mean, spread]))
    return rows


def _at_one_rate(conditions: Some, layers: Sequence[str]) -> Some:
    """Return what has one of some layers, at the paper's rate, or else the first that there is."""
    own = [c for c in conditions if c.settings.layer in layers]
    rates = [c.settings.rate for c in own if c.settings.layer != "none"]
    if rates:
        paper = own[0].settings.plan.rate
        rate = paper if paper in rates else rates[0]
        own = [c for c in own if c.settings.layer == "none" or c.settings.rate == rate]
    return own


def _at_one_alpha(conditions: Some) -> Some:
    own = _at_one_rate(conditions, _ABLATED)
    alphas = sorted({c.settings.alpha for c in own if c.settings.layer != "dropout"})
    if not alphas:
        return own
    paper = own[0].settings.plan.alpha
    return _with_alpha(own, paper if paper in alphas else alphas[0])


def _with_alpha(conditions: Some, *alphas: float) -> Some:
    return [c for c in conditions if c.settings.layer == "dropout" or c.settings.alpha in alphas]


_PERPLEXITY = partial(learning, shown=("train_perplexity", "valid_perplexity", "test_perplexity"))
_ERROR = partial(learning, shown=("train_error", "test_error"))

# For each figure the experiments that it shows, from top to bottom, and how.
FIGURES: dict[str, dict[str, Callable[[Some], list[Row]]]] = {
    "figure-2": {"mnist-mlp": _learning_and_sweep},
    "figure-3": {"mnist-mlp": _distributions},
    "figure-4": {"mnist-lenet5": _learning_and_sweep, "cifar10-wrn": learning},
    "figure-5": {"ptb-medium": _PERPLEXITY, "ptb-large": _PERPLEXITY},
    "figure-6": {"reviews-lstm": _ERROR, "reviews-gru": _ERROR},
    "figure-A2": {"mnist-mlp": _spreads},
}
