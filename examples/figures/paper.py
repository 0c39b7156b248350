"""The paper's figures of runs, each as rows of panels; no rows if there are no runs for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from examples.comparison import Condition, measures
from examples.figures import outputs, panels
from examples.figures.style import Row, looks
from examples.sparse import VIEWS

__all__ = ["FIGURES", "learning"]

Some = Sequence[Condition]

_COMPARED = ("none", "dropout", "qsd")
_ABLATED = ("dropout", "dist-p", "dist-q", "qsd")
_CLASSES = ("train_cost", "test_cost", "test_error")


def learning(
    conditions: Some, shown: Sequence[str] = _CLASSES, *, last: float | None = None
) -> list[Row]:
    """Return learning curves at one rate; with ``last``, the last of them close up as well."""
    own = _at_one_rate(conditions, _COMPARED)
    if not own:
        return []
    drawn = [panels.curves(own, name) for name in shown]
    if last is not None and (own[0].settings.epochs or 0) > 1:
        drawn.append(panels.curves(own, shown[-1], last=last))
    return [Row(f"{own[0].plan.title}, rate {own[-1].rate:g}", drawn)]


def _learning_and_sweep(conditions: Some) -> list[Row]:
    own = [c for c in conditions if c.layer in _COMPARED]
    rows = learning(own)
    if len({c.rate for c in own}) > 1:
        plan = own[0].plan
        shown = [panels.sweep(own, measure) for measure in measures(plan)]
        rows.append(Row(f"{plan.title}, after training", shown))
    return rows


def _ablation(conditions: Some) -> list[Row]:
    """Return the curves of QSD and its ablations, a panel for each α that was ablated."""
    own = _at_one_rate(conditions, _ABLATED)
    ablated = sorted({c.alpha for c in own if c.layer.startswith("dist")})
    if not ablated:
        return []
    boxed = _with_alpha(own, *ablated)
    shown = [
        panels.curves(_with_alpha(own, alpha), "test_cost", looks(boxed), f", α {alpha:g}")
        for alpha in ablated
    ]
    return [Row("A: ablation", [*shown, panels.score_boxes(boxed, "test_cost")])]


def _distributions(conditions: Some) -> list[Row]:
    """Return figure 3: the ablation, and histograms of outputs and weights."""
    own = _at_one_alpha(conditions)
    if not own:
        return []
    sites = list(enumerate(own[0].plan.sites, 1))
    rows = _ablation(conditions)
    for view, title in VIEWS.items():
        shown = [
            outputs.histogram(own, f"{view}/{site}/{over}", f"{name}, {over}")
            for over in ("units", "samples")
            for site, name in sites
        ]
        rows.append(Row(f"{title}; mean outputs of units and of samples", shown))
    shown = [
        outputs.histogram(own, f"weights/dense{site}/{part}", f"dense {site}, {title}")
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
        mean = outputs.site_boxes(own, view, 0, "mean output, over samples")
        spread = outputs.site_boxes(own, view, 1, "its standard deviation")
        rows.append(Row(f"{title}; outputs averaged over the units of each layer", [mean, spread]))
    return rows


def _at_one_rate(conditions: Some, layers: Sequence[str]) -> Some:
    """Return what has one of some layers, at the paper's rate, or else the first that there is."""
    own = [c for c in conditions if c.layer in layers]
    rates = [c.rate for c in own if c.layer != "none"]
    if rates:
        paper = own[0].plan.rate
        rate = paper if paper in rates else rates[0]
        own = [c for c in own if c.layer == "none" or c.rate == rate]
    return own


def _at_one_alpha(conditions: Some) -> Some:
    own = _at_one_rate(conditions, _ABLATED)
    alphas = sorted({c.alpha for c in own if c.layer != "dropout"})
    if not alphas:
        return own
    paper = own[0].plan.alpha
    return _with_alpha(own, paper if paper in alphas else alphas[0])


def _with_alpha(conditions: Some, *alphas: float) -> Some:
    return [c for c in conditions if c.layer == "dropout" or c.alpha in alphas]


def _left_open(conditions: Some) -> list[Row]:
    """Return what the paper left open: a mean of 1, and retain probabilities that samples share."""
    own = _at_one_rate(conditions, _ABLATED)
    own = [c for c in own if c.layer == "dropout" or c.alpha == own[0].plan.alpha]
    if all(c.is_papers for c in own):
        return []
    shown = [
        panels.curves(own, name, last=_LAST) for name in ("train_cost", *measures(own[0].plan))
    ]
    boxes = [panels.score_boxes(own, name) for name in measures(own[0].plan)]
    return [
        Row(f"{own[0].plan.title}, rate {own[-1].rate:g}: what the paper left open", shown),
        Row("scores", boxes),
    ]


_LAST = 0.3  # of the epochs
_PERPLEXITY = partial(
    learning, shown=("train_perplexity", "valid_perplexity", "test_perplexity"), last=_LAST
)
_ERROR = partial(learning, shown=("train_error", "test_error"), last=_LAST)


def _papers(rows_of: Callable[[Some], list[Row]]) -> Callable[[Some], list[Row]]:
    """Show only layers that the paper has."""
    return lambda conditions: rows_of([c for c in conditions if c.is_papers])


# For each figure the experiments that it shows, from top to bottom, and how.
FIGURES: dict[str, dict[str, Callable[[Some], list[Row]]]] = {
    "figure-2": {"mnist-mlp": _papers(_learning_and_sweep)},
    "figure-3": {"mnist-mlp": _papers(_distributions)},
    "figure-4": {"mnist-lenet5": _papers(_learning_and_sweep), "cifar10-wrn": _papers(learning)},
    "figure-5": {"ptb-medium": _papers(_PERPLEXITY), "ptb-large": _papers(_PERPLEXITY)},
    "figure-6": {"reviews-lstm": _papers(_ERROR), "reviews-gru": _papers(_ERROR)},
    "figure-A2": {"mnist-mlp": _papers(_spreads)},
    # Not of the paper.
    "figure-open": {"mnist-mlp": _left_open},
    "figure-digits": {"digits-mlp": _papers(_learning_and_sweep)},
}
