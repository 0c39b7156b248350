"""What the paper claims, as data: which runs are compared, in what, and what is to be seen."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from examples.experiments import EXPERIMENTS, SPARSER, Experiment
from examples.settings import Settings

__all__ = ["ABLATION_Z", "CLAIMS", "Claim", "Quantity", "Who", "who"]

# Z of QSD against its ablations; at α 0.5 the paper gives the lower of two.
ABLATION_Z = {0.2: "3.36", 0.5: "≥ 2.94"}


@dataclass(frozen=True)
class Who:
    """A condition of an experiment, in whatever backend."""

    layer: str
    rate: float | None = None
    alpha: float | None = None
    unit_mean: bool = False
    shared_p: bool = False


def who(settings: Settings) -> Who:
    """Return the condition of a run."""
    return Who(**{field.name: getattr(settings, field.name) for field in fields(Who)})


@dataclass(frozen=True)
class Quantity:
    """What is measured of a run: a score by its name, or a statistic of a measured array.

    ``array`` is a name in ``sparse.npz``; ``index`` is the place among its totals, or in its mean
    and standard deviation.
    """

    score: str | None = None
    array: str | None = None
    index: int = 0


@dataclass(frozen=True)
class Claim:
    """A statement about two conditions, or about one.

    Parameters
    ----------
    experiment : str
        Which one.
    text : str
        The statement, in words.
    own, other : Who
        What is compared; ``other`` is None for a statement about ``own`` alone.
    of : Quantity
        In what.
    expected : str
        ``lower``: own is below other. ``alike``: nothing is seen between them. ``above``: own is
        above ``bound``. ``rises``: the more alike own's α is to dropout's, the higher.
        ``lowest``: own is below dropout at every rate.
    paper : str
        Its numbers.
    z : str
        Its Z.
    claimed : bool
        False where the paper says nothing, and what is seen is told all the same.
    is_main : bool
        Whether it is what the paper is about: QSD scores better than dropout.
    """

    experiment: str
    text: str
    own: Who
    other: Who | None
    of: Quantity
    expected: Literal["lower", "alike", "above", "rises", "lowest"] = "lower"
    paper: str = ""
    z: str = ""
    bound: float = 0.0
    claimed: bool = True
    is_main: bool = False


def _scores(plan: Experiment) -> list[Claim]:
    """Return the claims that are in an experiment's findings: QSD below dropout."""
    values = {(f.layer, f.rate, f.alpha, f.measure): f for f in plan.findings}
    found = []
    for finding in plan.findings:
        base = values.get(("dropout", finding.rate, None, finding.measure))
        if finding.layer == "qsd" and base and finding.z:
            who = f"QSD α {finding.alpha:g} below dropout, rate {finding.rate:g}"
            found.append(
                Claim(
                    plan.name,
                    f"test {finding.measure}: {who}",
                    Who("qsd", finding.rate, finding.alpha),
                    Who("dropout", finding.rate),
                    Quantity(f"test_{finding.measure}"),
                    paper=f"{finding.value:g} against {base.value:g}",
                    z=f"{finding.z:g}",
                    is_main=True,
                )
            )
    return found


def _ablations(plan: Experiment) -> list[Claim]:
    values: dict[tuple[str, float | None], float]
    values = {(f.layer, f.alpha): f.value for f in plan.findings if f.measure == "cost"}
    found = []
    for alpha, z in ABLATION_Z.items():
        for layer, name in (("dist-p", "Dist. p"), ("dist-q", "Dist. q")):
            found.append(
                Claim(
                    plan.name,
                    f"test cost: QSD below {name}, both α {alpha:g}, rate {plan.rate:g}",
                    Who("qsd", plan.rate, alpha),
                    Who(layer, plan.rate, alpha),
                    Quantity("test_cost"),
                    paper=f"{values['qsd', alpha]:g} against {values[layer, alpha]:g}",
                    z=z,
                )
            )
    return found


def _outputs(plan: Experiment) -> list[Claim]:
    """Return the claims about what the last measured place puts out, masks off."""
    of = {"mean": ("mean", 0), "variance": ("variance", 1), "absolute": ("mean size", 2)}
    place = len(plan.measured)
    own, dropout = Who("qsd", plan.rate, plan.alpha), Who("dropout", plan.rate)
    return [
        Claim(
            plan.name,
            f"{of[total][0]} of the outputs of {plan.measured[-1]}, masks off: QSD below dropout",
            own,
            dropout,
            Quantity(array=f"masks-off/{place}/totals", index=of[total][1]),
            paper=f"{-lower:.0%}",
        )
        for total, lower in SPARSER.get(plan.name, {}).items()
    ]


def _perceptron(plan: Experiment) -> list[Claim]:
    qsd, dropout, more = Who("qsd", 0.2, 0.2), Who("dropout", 0.2), Who("qsd", 0.3, 0.2)
    cost, trained = Quantity("test_cost"), Quantity("train_cost")

    def samples(view: str, index: int) -> Quantity:
        return Quantity(array=f"{view}/3/samples/spread", index=index)

    def claim(text: str, own: Who, other: Who | None, of: Quantity, **rest: Any) -> Claim:
        return Claim(plan.name, text, own, other, of, **rest)

    found = [
        claim("test cost: the larger α, the closer to dropout, rate 0.2",
              qsd, dropout, cost, expected="rises", paper="rises"),
        claim("test cost: QSD α 0.2, rate 0.2, below dropout at every rate",
              qsd, None, cost, expected="lowest", paper="below"),
        claim("training cost: little between QSD α 0.2 and dropout, rate 0.2",
              qsd, dropout, trained, expected="alike", paper="little between them"),
        claim("training cost of QSD α 0.2 at rate 0.3: impaired",
              more, None, trained, expected="above", bound=0.1, paper="> 0.1"),
        claim("test cost of QSD α 0.2: higher at rate 0.3 than at 0.2",
              qsd, more, cost, paper="lower at 0.2"),
    ]  # fmt: skip
    for view, title in (("masks-off", "test data (C)"), ("permuted", "permuted pixels (D)")):
        for index, name in enumerate(("mean", "standard deviation")):
            text = f"{name} of layer 3 over samples, {title}, masks off"
            of = samples(view, index)
            found.append(claim(f"{text}: QSD below dropout", qsd, dropout, of, paper="lower"))
            for layer, title_of in (("dist-p", "Dist. p"), ("dist-q", "Dist. q")):
                same = replace(qsd, layer=layer)
                found.append(
                    claim(
                        f"{text}: QSD below {title_of}", qsd, same, of, paper="lower: only QSD is"
                    )
                )
    found += [
        claim(f"mean of layer {site} over samples, masks on (B): as with dropout",
              qsd, dropout, Quantity(array=f"masks-on/{site}/samples/spread"),
              expected="alike", paper="no difference")
        for site in (1, 2, 3)
    ]  # fmt: skip
    found += [
        claim(f"spread of the trained {title} of dense {layer} (E): no shift", qsd, dropout,
              Quantity(array=f"weights/dense{layer}/{part}/spread", index=1), expected="alike",
              paper="no shift")
        for part, title in (("kernel", "weights"), ("bias", "biases"))
        for layer in (1, 2, 3)
    ]  # fmt: skip
    # Of lower rates the paper shows its figures only, and of errors nothing.
    less = Who("qsd", 0.1, 0.2), Who("dropout", 0.1)
    found += [
        claim(f"{measure}: QSD α 0.2 below dropout, rate {pair[0].rate:g}", *pair, of,
              paper="no claim", claimed=False)
        for measure, pair, of in (
            ("test error", (qsd, dropout), Quantity("test_error")),
            ("test cost", less, cost),
            ("test error", less, Quantity("test_error")),
        )
    ]  # fmt: skip
    return found


def _lenet(plan: Experiment) -> list[Claim]:
    dropout, cost = Who("dropout", plan.rate), Quantity("test_cost")
    return [
        Claim(plan.name, "test cost: dropout below no layer", dropout, Who("none"), cost,
              paper="lower"),
        Claim(plan.name, "test cost: QSD α 0.2, rate 0.1, below dropout at every rate",
              Who("qsd", plan.rate, 0.2), None, cost, expected="lowest", paper="below"),
    ]  # fmt: skip


def _language(plan: Experiment) -> list[Claim]:
    qsd, dropout = Who("qsd", plan.rate, plan.alpha), Who("dropout", plan.rate)
    return [
        Claim(plan.name, "training perplexity: dropout below QSD", dropout, qsd,
              Quantity("train_perplexity"), paper="lower"),
        Claim(plan.name, "validation perplexity: QSD below dropout", qsd, dropout,
              Quantity("valid_perplexity"), paper="lower"),
    ]  # fmt: skip


_MORE = {
    "mlp": lambda plan: [*_ablations(plan), *_perceptron(plan)],
    "lenet5": _lenet,
    "language": _language,
}

CLAIMS: tuple[Claim, ...] = tuple(
    claim
    for plan in EXPERIMENTS.values()
    if plan.findings
    for claim in (
        *_scores(plan),
        *(_MORE[plan.model](plan) if plan.model in _MORE else ()),
        *_outputs(plan),
    )
)
