"""The paper's statistics of runs: medians, quartiles, rank-sum tests.

Only finished runs count. One that diverged counts as worse than any number, so that it moves the
median and the ranks instead of vanishing from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from examples.experiments import Experiment, Finding
from examples.records import Record
from examples.settings import Settings

__all__ = [
    "Condition",
    "Test",
    "all_measures",
    "conditions",
    "dropout_of",
    "measures",
    "qsd_of",
    "quartiles",
    "rank_sum",
    "signed_rank",
]


@dataclass(frozen=True)
class Test:
    """An unpaired Wilcoxon rank-sum test; ``z`` is positive where the condition is the lower."""

    __test__ = False  # of the runs, not of pytest

    z: float
    p: float
    matched: int
    """How many seeds both have."""


@dataclass(frozen=True)
class Condition:
    """The finished runs that differ in nothing but the seed; ``settings`` are those of seed 0."""

    settings: Settings
    runs: list[Record] = field(default_factory=list)

    @property
    def plan(self) -> Experiment:
        """The experiment."""
        return self.settings.plan

    @property
    def layer(self) -> str:
        """What stands at the sites."""
        return self.settings.layer

    @property
    def rate(self) -> float:
        """The drop rate; 0 without a layer."""
        return self.settings.rate or 0.0

    @property
    def alpha(self) -> float:
        """The homogeneity; infinite for dropout."""
        return inf if self.settings.alpha is None else self.settings.alpha

    @property
    def diverged(self) -> int:
        """How many diverged."""
        return sum(run.diverged for run in self.runs)

    @property
    def seconds(self) -> float | None:
        """How long all of them took; None if that was not recorded."""
        times = [run.seconds for run in self.runs]
        return None if None in times else sum(time for time in times if time is not None)

    def scores(self, measure: str) -> dict[int, float]:
        """Return each seed's score, such as ``test_cost``; infinite if the run diverged."""
        return {
            run.settings.seed: inf if run.diverged else run.score[measure]
            for run in self.runs
            if run.score is not None
        }

    @property
    def is_papers(self) -> bool:
        """Whether the paper has such a layer: its mean is not 1, and samples share nothing."""
        return not (self.settings.unit_mean or self.settings.shared_p)

    def curve(self, measure: str) -> NDArray[np.float64]:
        """Return the quartiles of a measure after each epoch, (3, epochs)."""
        # Without a number for its cost, an epoch may lack other measures.
        lines = np.array([[line.get(measure, inf) for line in run.metrics] for run in self.runs])
        return quartiles(np.where(np.isnan(lines), inf, lines))

    def against(self, other: Condition, measure: str) -> Test:
        """Compare with another condition, such as dropout."""
        own, its = self.scores(measure), other.scores(measure)
        z, p = rank_sum([*own.values()], [*its.values()])
        return Test(z, p, len(own.keys() & its.keys()))

    def paired(self, other: Condition, measure: str) -> tuple[int, int, float]:
        """Return in how many pairs of equal seeds this is the lower, of how many, and P."""
        own, its = self.scores(measure), other.scores(measure)
        seeds = sorted(own.keys() & its.keys())
        pairs = [own[seed] for seed in seeds], [its[seed] for seed in seeds]
        lower = sum(a < b for a, b in zip(*pairs, strict=True))
        return lower, len(seeds), signed_rank(*pairs)

    def finding(self, measure: str) -> Finding | None:
        """Return what the paper found under this condition."""
        if not self.is_papers:
            return None
        own = (self.layer, self.rate, self.settings.alpha, measure)
        for found in self.plan.findings:
            if (found.layer, found.rate, found.alpha, f"test_{found.measure}") == own:
                return found
        return None


def conditions(records: Iterable[Record]) -> dict[Settings, Condition]:
    """Group finished runs, as `collect` orders them, by all that defines them but the seed."""
    found: dict[Settings, Condition] = {}
    for record in records:
        if record.score is not None:
            key = record.settings.but(seed=0, device="auto", devices=1)
            found.setdefault(key, Condition(key)).runs.append(record)
    return found


def rank_sum(own: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """Return Z and P of the unpaired Wilcoxon rank-sum test; Z is positive where own is the lower.

    As the paper's: by the normal law, without a correction for ties.

    Examples
    --------
    >>> z, p = rank_sum(range(8), range(8, 16))
    >>> round(z, 2), p < 0.001
    (3.36, True)
    """
    z, p = stats.ranksums(other, own)
    return float(z), float(p)


def signed_rank(own: Sequence[float], other: Sequence[float]) -> float:
    """Return P of the paired Wilcoxon signed-rank test.

    Runs of one seed begin with the same weights, see the same batches and, in the demo, have the
    same test data: what differs from seed to seed for all layers alike is not counted against one.

    Examples
    --------
    >>> signed_rank(range(8), range(1, 16, 2)) < 0.01
    True
    """
    # Equal pairs say nothing; of two runs that diverged, the difference is no number.
    differences = [a - b for a, b in zip(own, other, strict=True) if a != b]
    return float(stats.wilcoxon(differences).pvalue) if differences else 1.0


def dropout_of(condition: Condition, among: dict[Settings, Condition]) -> Condition | None:
    """Return the condition with dropout at the same rate, and all else the same."""
    if condition.layer in ("none", "dropout"):
        return None
    return among.get(condition.settings.but(layer="dropout", rate=condition.rate))


def qsd_of(condition: Condition, among: dict[Settings, Condition]) -> Condition | None:
    """Return QSD at the same rate and α, for its ablations and for what the paper left open.

    An ablation in which samples share p is compared with QSD in which they do, too.
    """
    own = condition.settings
    if own.layer in ("none", "dropout") or (own.layer == "qsd" and condition.is_papers):
        return None
    shared = own.shared_p and own.layer != "qsd"
    return among.get(own.but(layer="qsd", rate=own.rate, alpha=own.alpha, shared_p=shared))


def measures(experiment: Experiment) -> tuple[str, ...]:
    """Return the scores by which an experiment is judged.

    Examples
    --------
    >>> from examples.experiments import experiment
    >>> measures(experiment("ptb-medium"))
    ('test_perplexity',)
    """
    return {
        "error": ("test_cost", "test_error"),
        "perplexity": ("test_perplexity",),
        "rmse": ("test_error",),
    }[experiment.error]


def all_measures(experiment: Experiment) -> tuple[str, ...]:
    """Return those, and what else the paper speaks of: how the training data are learnt."""
    others = {
        "error": ("train_cost",),
        "perplexity": ("valid_perplexity", "train_perplexity"),
        "rmse": ("train_error",),
    }
    return measures(experiment) + others[experiment.error]


def quartiles(values: ArrayLike) -> NDArray[np.float64]:
    """Return the lower quartile, the median and the upper one, over the first axis.

    As `numpy.quantile`, which makes NaN of infinite values.

    Examples
    --------
    >>> quartiles([1, 2, 3, float("inf"), float("inf")]).tolist()
    [2.0, 3.0, inf]
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=0)
    return np.stack([_quantile(ordered, share) for share in (0.25, 0.5, 0.75)])


def _quantile(ordered: NDArray, share: float) -> NDArray[np.float64]:
    whole, part = divmod(share * (len(ordered) - 1), 1)
    low = ordered[int(whole)]
    if part == 0:
        return low
    high = ordered[int(whole) + 1]
    return np.where(np.isfinite(low), (1 - part) * low + part * high, inf)
