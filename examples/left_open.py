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
        yield "A mean of 1, and retain probabilities that samples share: not run."
        return
    yield (
        "*mean 1*: coefficients divided by their mean, so that E[c] = 1. *shared p*: one retain "
        "probability of a unit for all samples of a batch; masks stay each sample's own. Z is "
        "positive where the condition is the lower."
    )
    yield table(_open_row(condition, own) for condition in there)
    yield "\n".join(f"- {_answer(condition, own)}" for condition in there)
    rows = [_sparseness(c) for c in own.values() if _is_of_3b(c)]
    if rows:
        yield (
            "Figure 3B, masks on: how sparse the units' mean outputs are, as (mean)² / mean of "
            "squares over the units of a layer (Treves and Rolls): the lower, the sparser; medians "
            "over the runs. The paper sees sparser means for Dist. p and QSD."
        )
        yield table(rows)


def _open_row(condition: Condition, own: Found) -> dict[str, str]:
    row = {"condition": words.layer(condition.settings), "n": str(len(condition.runs))}
    for measure in all_measures(condition.plan):
        title = words.measure(measure)
        row[title] = words.number(quartiles([*condition.scores(measure).values()])[1])
        for name, other in _references(condition, own).items():
            test = condition.against(other, measure)
            row[f"{title}: Z, P against {name}"] = f"{test.z:.2f}, {test.p:.2g}"
    return row


def _references(condition: Condition, own: Found) -> dict[str, Condition]:
    several = {"dropout": dropout_of(condition, own), "QSD": qsd_of(condition, own)}
    return {name: other for name, other in several.items() if other is not None}


def _answer(condition: Condition, own: Found) -> str:
    said = []
    for other in _references(condition, own).values():
        test = condition.against(other, "test_cost")
        seen = "below" if test.z > 0 else "above"
        seen = f"{seen} that of" if test.p < 0.05 else "not seen to differ from that of"
        said.append(f"{seen} {words.layer(other.settings)} (Z = {test.z:.2f}, P = {test.p:.2g})")
    return (
        f"{words.layer(condition.settings)}: its test cost is {'; '.join(said) or 'not compared'}."
    )


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
