"""The rows of a report's tables, as numbers: one for each condition, beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import isclose
from typing import Any

import numpy as np

from examples import words
from examples.claims import ABLATION_Z, CLAIMS, who
from examples.comparison import Condition, all_measures, dropout_of, qsd_of, quartiles
from examples.experiments import SPARSER, experiment
from examples.settings import Settings
from examples.sparse import TOTALS, VIEWS
from examples.summaries import load

__all__ = ["results", "sparse"]

Row = dict[str, Any]
Found = dict[Settings, Condition]


def results(found: Found) -> Iterator[Row]:
    """Yield a row for each condition and measure, those of the paper that are missing included."""
    for name, group in groupby(found.values(), lambda condition: condition.settings.experiment):
        own = list(group)
        for measure in all_measures(experiment(name)):
            for condition in own:
                yield _result(condition, measure, found)
            for condition in _missing(name, own, measure):
                yield _result(condition, measure, {})


def _missing(name: str, own: Sequence[Condition], measure: str) -> Iterator[Condition]:
    """Yield the paper's conditions that a backend lacks, of the backends that have any."""
    there = {(c.settings.software, c.layer, c.rate, c.alpha) for c in own if c.is_papers}
    first = {c.settings.software: c.settings for c in reversed(own)}
    for software, start in reversed(first.items()):
        for finding in experiment(name).findings:
            settings = Settings(
                name,
                start.backend,
                finding.layer,
                finding.rate,
                finding.alpha,
                keras_backend=start.keras_backend,
            )
            lacking = Condition(settings)
            place = (software, lacking.layer, lacking.rate, lacking.alpha)
            if place not in there and measure == f"test_{finding.measure}":
                yield lacking


def _result(condition: Condition, measure: str, found: Found) -> Row:
    settings, finding = condition.settings, condition.finding(measure)
    scores = [*condition.scores(measure).values()]
    low, median, high = quartiles(scores) if scores else (None,) * 3
    dropout, qsd = dropout_of(condition, found), qsd_of(condition, found)
    test = condition.against(dropout, measure) if dropout else None
    other = qsd.against(condition, measure) if qsd else None
    return _who(settings) | {
        "measure": measure,
        "n": len(scores),
        "diverged": condition.diverged,
        "lower_quartile": low,
        "median": median,
        "upper_quartile": high,
        "paper": finding and finding.value,
        "paper_above": _bound(condition, measure),
        "z": test and test.z,
        "p": test and test.p,
        "paper_z": finding and finding.z,
        "matched": test and test.matched,
        "z_of_qsd": other and other.z,
        "p_of_qsd": other and other.p,
        "paper_z_of_qsd": _ablation(condition, measure),
        "seconds": condition.seconds,
    }


def _bound(condition: Condition, measure: str) -> float | None:
    """Return what the paper says that a training cost is above."""
    bounds = [claim for claim in CLAIMS if claim.expected == "above" and claim.of.score == measure]
    for claim in bounds:
        if claim.experiment == condition.settings.experiment and claim.own == who(
            condition.settings
        ):
            return claim.bound
    return None


def _ablation(condition: Condition, measure: str) -> str | None:
    """Return the paper's Z of QSD against an ablation."""
    at_papers = condition.is_papers and condition.rate == condition.plan.rate
    ablated = condition.layer.startswith("dist") and measure == "test_cost"
    return ABLATION_Z.get(condition.alpha) if at_papers and ablated else None


def _who(settings: Settings) -> Row:
    return {
        "experiment": settings.experiment,
        "backend": words.backend(settings),
        "condition": words.layer(settings),
        "rate": settings.rate,
        "setup": words.setup(settings),
    }


def sparse(found: Found) -> Iterator[Row]:
    """Yield a row for each condition, site and view: medians over the runs that did not diverge.

    The changes are relative to dropout at the same rate.
    """
    totals = {settings: _totals(condition) for settings, condition in found.items()}
    for settings, condition in found.items():
        dropout = dropout_of(condition, found)
        base = totals[dropout.settings] if dropout else {}
        for (site, view), values in totals[settings].items():
            name = condition.plan.measured[site - 1]
            row = _who(settings) | {"n": len(values), "site": name, "view": view}
            row |= dict(zip(TOTALS, np.median(values, axis=0).tolist(), strict=True))
            for at, total in enumerate(TOTALS):
                row[f"{total}_change"] = _change(values, base.get((site, view)), at)
            if not isclose(row["mean"], row["absolute"]):
                row["mean_change"] = None  # of outputs on both sides of 0 it would say nothing
            yield row | _paper(settings, site, view)


def _totals(condition: Condition) -> dict[tuple[int, str], list[np.ndarray]]:
    found: dict[tuple[int, str], list[np.ndarray]] = {}
    for run in condition.runs:
        measured = {} if run.diverged else load(run.folder)
        for site in range(1, len(condition.plan.measured) + 1):
            for view in VIEWS:
                if f"{view}/{site}/totals" in measured:
                    found.setdefault((site, view), []).append(measured[f"{view}/{site}/totals"])
    return found


def _change(values: Sequence[np.ndarray], base: Sequence[np.ndarray] | None, at: int) -> Any:
    if base is None:
        return None
    own, its = (float(np.median([one[at] for one in group])) for group in (values, base))
    return own / its - 1 if its else None


def _paper(settings: Settings, site: int, view: str) -> Row:
    """Return the changes that the paper gives: of the last site, QSD as trained there."""
    plan = settings.plan
    asked = (settings.layer, settings.rate, settings.alpha, site, view)
    given = asked == ("qsd", plan.rate, plan.alpha, len(plan.measured), "masks-off")
    given = given and not (settings.unit_mean or settings.shared_p)
    lower = SPARSER.get(plan.name, {}) if given else {}
    return {f"paper_{name}_change": -lower[name] if name in lower else None for name in TOTALS}
