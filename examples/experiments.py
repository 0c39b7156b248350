"""Every experiment of the paper as data: model, training, sites, and what the paper found.

To be read beside the paper. What it leaves to the works that it cites is marked (cited). Nothing
here computes; `initial` says how the weights are drawn, and each backend builds its models from
`Experiment.model` and `Experiment.sizes`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from quantal._errors import wrong_value

__all__ = [
    "EXPERIMENTS",
    "LAYERS",
    "SPARSER",
    "Experiment",
    "Finding",
    "Optimiser",
    "Schedule",
    "experiment",
]

Layer = Literal["none", "dropout", "qsd", "dist-p", "dist-q"]
LAYERS = ("none", "dropout", "qsd", "dist-p", "dist-q")


@dataclass(frozen=True)
class Optimiser:
    """How weights are moved.

    ``weight_decay`` λ adds λ·w to the gradient of every weight w, before momentum or Adam: the
    penalty λ/2·Σw², which the reported costs leave out. ``clip`` bounds the norm of the whole
    gradient.
    """

    kind: Literal["sgd", "adam"]
    rate: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    clip: float | None = None


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a multiple of the first one; epochs count from 0.

    ``steps``: multiplied by ``factor`` at each of these epochs. ``after``: multiplied by ``factor``
    at every epoch from this one on.
    """

    factor: float = 1.0
    steps: tuple[int, ...] = ()
    after: int | None = None

    def __call__(self, epoch: int) -> float:
        """Return the multiple that holds in an epoch."""
        times = sum(epoch >= step for step in self.steps)
        if self.after is not None:
            times += max(0, epoch - self.after + 1)
        return self.factor**times


@dataclass(frozen=True)
class Finding:
    """A median that the paper reports, with Z of its rank-sum test where it gives one."""

    layer: Layer
    rate: float
    alpha: float | None
    measure: Literal["cost", "error", "perplexity"]
    value: float
    z: float | None = None


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    ``sizes`` are the model's own numbers; ``sites`` name the places of the layer under test, in
    the order of the pass: at one called "words" all features of a word share a coefficient.
    ``probes`` name further places whose outputs are measured once it is trained. ``rates`` and
    ``alphas`` are the grid of the paper's figures. ``variants`` are other readings of what the
    paper leaves open: by name, the fields that differ.
    """

    name: str
    title: str
    data: Literal["digits", "mnist", "cifar10", "ptb", "reviews"]
    model: Literal["mlp", "lenet5", "wrn", "language", "reviews"]
    sizes: dict[str, Any]
    sites: tuple[str, ...]
    start: Literal["he", "uniform", "glorot"]
    cost: Literal["cross-entropy", "squared error"]
    error: Literal["error", "perplexity", "rmse"]
    optimiser: Optimiser
    schedule: Schedule
    batch: int
    epochs: int
    rate: float
    alpha: float
    rates: tuple[float, ...] = ()
    alphas: tuple[float, ...] = ()
    findings: tuple[Finding, ...] = field(default=())
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    probes: tuple[str, ...] = ()

    @property
    def measured(self) -> tuple[str, ...]:
        """The places whose outputs are measured."""
        return self.sites + self.probes

    @property
    def costs_per_sample(self) -> int:
        """How many costs of a sample are summed, in training, before the mean over the batch.

        A language model has one for each word that it is unrolled for: the learning rates and the
        bounds of the gradient belong to their sum (cited). What is reported stays a mean.
        """
        return int(self.sizes["steps"]) if self.model == "language" else 1


_THREE_STEPS = Schedule(factor=0.2, steps=(30, 60, 80))

_MLP = Experiment(
    name="mnist-mlp",
    title="Multilayer perceptron on MNIST",
    data="mnist",
    model="mlp",
    sizes={"inputs": 784, "hidden": (128, 256, 512), "classes": 10},
    sites=("ReLU 1", "ReLU 2", "ReLU 3"),
    start="he",
    cost="cross-entropy",
    error="error",
    optimiser=Optimiser("sgd", 0.01, momentum=0.9),
    schedule=_THREE_STEPS,
    batch=64,
    epochs=100,
    rate=0.2,
    alpha=0.2,
    rates=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5),
    alphas=(0.2, 0.5, 1.0, 2.0, 5.0),
    findings=(
        Finding("dropout", 0.2, None, "cost", 0.072),
        Finding("qsd", 0.2, 0.2, "cost", 0.061, z=3.36),
        Finding("dist-p", 0.2, 0.2, "cost", 0.070),
        Finding("dist-q", 0.2, 0.2, "cost", 0.073),
        Finding("qsd", 0.2, 0.5, "cost", 0.064),
        Finding("dist-p", 0.2, 0.5, "cost", 0.073),
        Finding("dist-q", 0.2, 0.5, "cost", 0.072),
    ),
)

_MEDIUM = Experiment(
    name="ptb-medium",
    title="Two-layer LSTM of 650 units on the Penn Treebank",
    data="ptb",
    model="language",
    # The embedding is as wide as the layers, and not tied to the softmax (cited).
    sizes={"vocabulary": 10_000, "units": 650, "layers": 2, "steps": 35},
    sites=("embedding", "LSTM 1", "LSTM 2"),  # what leaves them; the recurrence is left alone
    start="uniform",
    cost="cross-entropy",
    error="perplexity",
    optimiser=Optimiser("sgd", 1.0, clip=5.0),
    schedule=Schedule(factor=1 / 1.2, after=6),  # (cited)
    batch=20,
    epochs=39,
    rate=0.5,
    alpha=5.0,
    findings=(
        Finding("dropout", 0.5, None, "perplexity", 83.5),
        Finding("qsd", 0.5, 5.0, "perplexity", 81.8, z=3.36),
    ),
)


def _readings(cell: str) -> dict[str, Any]:
    """Return what the paper does not settle of the film reviews: sites and decay, and variants.

    It names no sites but "non-recurrent connections": what enters the recurrent layer, and what
    leaves it for the dense unit. The cited code has a third, on the embedding, whose coefficients
    whole words share; there they are drawn for the vocabulary, here for each word of a text.

    An L2 coefficient of 0.001 is a decay of 0.001 as a penalty λ/2·Σw², which is that of the
    author's own library (on matrices; here biases, which stay small, decay too), and of 0.002 as
    λ·Σw², which is that of the cited code.
    """
    sites = (f"{cell} input", f"{cell} output")
    three = {"sites": ("words", *sites)}
    adam = Optimiser("adam", 1e-3, weight_decay=1e-3)
    twice = {"optimiser": replace(adam, weight_decay=2e-3)}
    variants = {"words": three, "decay": twice, "cited": three | twice}
    return {"sites": sites, "optimiser": adam, "variants": variants}


_REVIEWS = Experiment(
    name="reviews-lstm",
    title="LSTM on the Cornell film reviews",
    data="reviews",
    model="reviews",
    sizes={"vocabulary": 20_000, "embedding": 128, "units": 128, "cell": "lstm", "steps": 200},
    **_readings("LSTM"),
    start="glorot",
    cost="squared error",
    error="rmse",
    schedule=Schedule(),
    batch=128,
    epochs=100,
    rate=0.5,
    alpha=1.0,
    findings=(
        Finding("dropout", 0.5, None, "error", 0.161),
        Finding("qsd", 0.5, 1.0, "error", 0.152, z=2.94),
    ),
)

_ALL = (
    _MLP,
    replace(
        _MLP,
        name="mnist-lenet5",
        title="LeNet-5 on MNIST",
        model="lenet5",
        # The first convolution is padded so that 28 × 28 pixels act as 32 × 32 (cited).
        sizes={"maps": (6, 16), "kernel": 5, "dense": (120, 84), "classes": 10},
        sites=("convolution 1", "convolution 2", "dense 1", "dense 2"),
        optimiser=Optimiser("sgd", 0.01, momentum=0.9, nesterov=True),
        rate=0.1,
        rates=(0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        findings=(
            Finding("dropout", 0.1, None, "cost", 0.016),
            Finding("qsd", 0.1, 0.2, "cost", 0.014, z=3.26),
            Finding("dropout", 0.1, None, "error", 0.0055),
            Finding("qsd", 0.1, 0.2, "error", 0.0050, z=2.42),
        ),
    ),
    Experiment(
        name="cifar10-wrn",
        title="Wide ResNet-16-6 on CIFAR-10",
        data="cifar10",
        model="wrn",
        sizes={"blocks": 2, "stem": 16, "widths": (96, 192, 384), "classes": 10},
        # In each of the 6 blocks, between the second ReLU and the second convolution.
        sites=tuple(f"block {group}.{block}" for group in (1, 2, 3) for block in (1, 2)),
        probes=("final ReLU",),  # after the last BatchNorm, which follows the last block
        start="he",
        cost="cross-entropy",
        error="error",
        optimiser=Optimiser("sgd", 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4),  # (cited)
        schedule=Schedule(factor=0.2, steps=(60, 120, 160)),
        batch=128,
        epochs=200,
        rate=0.1,
        alpha=0.2,
        findings=(
            Finding("dropout", 0.1, None, "cost", 0.222),
            Finding("qsd", 0.1, 0.2, "cost", 0.211, z=2.21),
            Finding("dropout", 0.1, None, "error", 0.0495),
            Finding("qsd", 0.1, 0.2, "error", 0.0487, z=2.048),
        ),
    ),
    _MEDIUM,
    replace(
        _MEDIUM,
        name="ptb-large",
        title="Two-layer LSTM of 1300 units on the Penn Treebank",
        sizes=_MEDIUM.sizes | {"units": 1300},
        optimiser=Optimiser("sgd", 1.0, clip=10.0),
        schedule=Schedule(factor=1 / 1.15, after=14),  # (cited)
        epochs=55,
        rate=0.6,
        alpha=10.0,
        findings=(
            Finding("dropout", 0.6, None, "perplexity", 79.7),
            Finding("qsd", 0.6, 10.0, "perplexity", 78.9, z=3.36),
        ),
    ),
    _REVIEWS,
    replace(
        _REVIEWS,
        name="reviews-gru",
        title="GRU on the Cornell film reviews",
        sizes=_REVIEWS.sizes | {"cell": "gru"},
        **_readings("GRU"),
        findings=(
            Finding("dropout", 0.5, None, "error", 0.153),
            Finding("qsd", 0.5, 1.0, "error", 0.148, z=2.10),
        ),
    ),
    # Not of the paper: 1,797 digits of 8 × 8 pixels that scikit-learn brings along, for the demo.
    # An epoch has 22 steps, not 937: a larger learning rate makes up for some of them. It was
    # chosen with seeds that the demo does not use.
    replace(
        _MLP,
        name="digits-mlp",
        title="Multilayer perceptron on scikit-learn's digits",
        data="digits",
        sizes=_MLP.sizes | {"inputs": 64},
        optimiser=Optimiser("sgd", 0.05, momentum=0.9),
        schedule=Schedule(factor=0.2, steps=(24, 32, 36)),
        epochs=40,
        findings=(),
    ),
)

EXPERIMENTS = {one.name: one for one in _ALL}

# By how much of dropout's the paper finds QSD's outputs lower, masks off: the mean of the final
# ReLU, or the mean size and the variance of the recurrent outputs.
_LSTM_2 = {"absolute": 0.17, "variance": 0.38}
SPARSER: dict[str, dict[str, float]] = {
    "mnist-lenet5": {"mean": 0.08},
    "cifar10-wrn": {"mean": 0.02},
    "ptb-medium": _LSTM_2,
    "ptb-large": _LSTM_2,
    "reviews-lstm": {"absolute": 0.15, "variance": 0.34},
}


def experiment(name: str, variant: str | None = None) -> Experiment:
    """Return the experiment of this name, or a variant of it.

    Examples
    --------
    >>> experiment("mnist-lenet5").rate
    0.1
    """
    if name not in EXPERIMENTS:
        raise wrong_value("experiment", f"one of {', '.join(EXPERIMENTS)}", name)
    found = EXPERIMENTS[name]
    if variant is None:
        return found
    if variant not in found.variants:
        expected = f"one of {', '.join(found.variants)}" if found.variants else "nothing"
        raise wrong_value("variant", f"{expected} for {name}", variant)
    return replace(found, **found.variants[variant])
