"""What the paper left open: a mean of 1, and retain probabilities that samples share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from examples import words
from examples.claims import Quantity, Who, who
from examples.comparison import Condition, all_measures, dropout_of, qsd_of, quartiles
from examples.judgement import Found, values
from examples.markdown import table

__all__ = ["left_open"]

_OPEN = (
    Who("qsd", 0.2, 0.2, unit_mean=True),
    Who("qsd", 0.2, 0.2, shared_p=True),
    Who("dist-p", 0.2, 0.2, shared_p=True),
    Who("dist-q", 0.2, 0.2, shared_p=True),
)


def left_open(own: Found) -> Iterator[str]:
    """Yield the paragraphs about it, from the conditions of the perceptron."""
    yield "### What the paper left open"
    there = [c for c in own.values() if who(c.settings) in _OPEN]
    if not there:
        yield "Coefficients with a mean of 1, and retain probabilities shared by samples: not run."
        return
    yield (
        "*mean 1*: coefficients are divided by their mean, so that E[c] = 1. *shared p*: all "
        "samples of a batch share the retain probability of a unit, but have masks of their own. Z "
        "is positive if the condition is lower."
    )
    yield table((row for condition in there for row in _open_rows(condition, own)), ("", "–"))
    yield "\n".join(f"- {_answer(condition, own)}" for condition in there)
    rows = [_sparseness(c) for c in own.values() if _is_of_3b(c)]
    if rows:
        yield (
            "Figure 3B, masks on. The table shows how sparse the mean outputs of the units of a "
            "layer are, as (mean)² / mean of squares over these units (Treves and Rolls), medians "
            "over the runs. A lower value means sparser. The paper sees sparser means for Dist. p "
            "and QSD."
        )
        yield table(rows)


def _open_rows(condition: Condition, own: Found) -> Iterator[dict[str, str]]:
    references = _references(condition, own)
    for measure in all_measures(condition.plan):
        row = {
            "condition": words.layer(condition.settings),
            "measure": words.measure(measure),
            "n": str(len(condition.runs)),
            "median": words.number(quartiles([*condition.scores(measure).values()])[1]),
        }
        for name in ("dropout", "QSD"):
            test = condition.against(references[name], measure) if name in references else None
            row[f"Z, P against {name}"] = "–" if test is None else f"{test.z:.2f}, {test.p:.2g}"
        yield row


def _references(condition: Condition, own: Found) -> dict[str, Condition]:
    several = {"dropout": dropout_of(condition, own), "QSD": qsd_of(condition, own)}
    return {name: other for name, other in several.items() if other is not None}


def _answer(condition: Condition, own: Found) -> str:
    said = []
    for other in _references(condition, own).values():
        test = condition.against(other, "test_cost")
        seen = "is below" if test.z > 0 else "is above"
        seen = seen if test.p < 0.05 else "does not differ detectably from"
        name = words.layer(other.settings)
        said.append(f"{seen} that of {name} (Z = {test.z:.2f}, P = {test.p:.2g})")
    shown = ", and it ".join(said) or "is not compared"
    return f"{words.layer(condition.settings)}: its test cost {shown}."


def _is_of_3b(condition: Condition) -> bool:
    own = condition.settings
    plan = condition.plan
    alike = own.rate == plan.rate and own.alpha in (None, plan.alpha)
    return alike and bool(values(condition, Quantity(array="masks-on/1/units/spread")))


def _sparseness(condition: Condition) -> dict[str, str]:
    row = {
        "condition": words.layer(condition.settings),
        "backend": words.backend(condition.settings),
    }
    for number, site in enumerate(condition.plan.sites, 1):
        name = f"masks-on/{number}/units/spread"
        means, spreads = (values(condition, Quantity(array=name, index=index)) for index in (0, 1))
        found = [m**2 / (m**2 + s**2) for m, s in zip(means, spreads, strict=True)]
        row[site] = f"{np.median(found):.3f}"
    return row
