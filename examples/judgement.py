"""Each claim of the paper against the runs that there are, by the paper's own test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np
from scipy import stats

from examples import summaries, words
from examples.claims import CLAIMS, Claim, Quantity, Who
from examples.claims import who as who_is
from examples.comparison import Condition, rank_sum
from examples.records import Record
from examples.settings import Settings

__all__ = ["LEAST", "RUNS", "Found", "Judgement", "judge", "values"]

RUNS = 8  # of each condition, in the paper
LEAST = 0.1  # of the paper's epochs: shorter runs are not judged
_SURE = 0.05

Found = dict[Settings, Condition]


@dataclass(frozen=True)
class Judgement:
    """What was found of a claim."""

    claim: Claim
    verdict: str
    """``not``, ``partly``, ``reproduced`` or ``not run``; of no claim, who is better."""
    ours: str = "–"
    n: str = "0"
    z: str = "–"
    p: str = "–"
    setup: str = ""
    conditions: tuple[Condition, ...] = ()

    @property
    def disagrees(self) -> bool:
        """Whether what was seen is not what the paper, or one who reads it, would expect."""
        return self.verdict in ("not", "worse")


def judge(found: Found, claims: Iterable[Claim] = CLAIMS) -> list[Judgement]:
    """Judge each claim by the runs of one backend: that which has the most, as the paper's were."""
    return [_judge(claim, found) for claim in claims]


def values(condition: Condition, of: Quantity) -> list[float]:
    """Return a quantity of every run; of one that diverged, a score is infinite."""
    if of.score is not None:
        return [*condition.scores(of.score).values()]
    found = (_measured(run, of) for run in condition.runs if not run.diverged)
    return [value for value in found if value is not None and isfinite(value)]


def _measured(run: Record, of: Quantity) -> float | None:
    measured = summaries.load(run.folder).get(str(of.array))
    return None if measured is None else float(measured[of.index])


def _judge(claim: Claim, found: Found) -> Judgement:
    several = [own for own in _groups(claim, found).values() if _is_there(claim, own)]
    if not several:
        return Judgement(claim, "not run")
    own = max(several, key=lambda group: _weight(claim, group))
    return {"above": _above, "rises": _rises, "lowest": _lowest}.get(claim.expected, _pair)(
        claim, own
    )


def _groups(claim: Claim, found: Found) -> dict[Settings, list[Condition]]:
    """Return what may be compared: the same but for the layer, and long enough."""
    groups: dict[Settings, list[Condition]] = {}
    for settings, condition in found.items():
        plan = condition.plan
        epochs = settings.epochs or plan.epochs
        if settings.experiment == claim.experiment and epochs >= LEAST * plan.epochs:
            groups.setdefault(settings.but(layer="none"), []).append(condition)
    return groups


def _is_there(claim: Claim, group: Sequence[Condition]) -> bool:
    wanted = [claim.own, *([] if claim.other is None else [claim.other])]
    chosen = [_one(who, group) for who in wanted]
    enough = all(one is not None and values(one, claim.of) for one in chosen)
    return enough and (claim.expected != "lowest" or bool(_dropouts(group)))


def _weight(claim: Claim, group: Sequence[Condition]) -> tuple[bool, int, int]:
    chosen = [_one(who, group) for who in (claim.own, claim.other) if who is not None]
    counts = [len(one.runs) for one in chosen if one]
    return not words.setup(group[0].settings), min(counts), group[0].settings.epochs or 0


def _one(who: Who, group: Sequence[Condition]) -> Condition | None:
    return next((one for one in group if who_is(one.settings) == who), None)


def _dropouts(group: Sequence[Condition]) -> list[Condition]:
    return [one for one in group if one.layer in ("none", "dropout")]


def _pair(claim: Claim, group: Sequence[Condition]) -> Judgement:
    own, other = (_one(who, group) for who in (claim.own, claim.other) if who is not None)
    assert own is not None
    assert other is not None
    return _compared(claim, own, other, values(own, claim.of), values(other, claim.of))


def _lowest(claim: Claim, group: Sequence[Condition]) -> Judgement:
    """Compare with that dropout, or none, which comes closest."""
    own = _one(claim.own, group)
    assert own is not None
    best = min(_dropouts(group), key=lambda one: np.median(values(one, claim.of)))
    found = _compared(claim, own, best, values(own, claim.of), values(best, claim.of))
    rates = sorted({one.rate for one in _dropouts(group)})
    whole = set(rates) >= set(own.plan.rates)
    verdict = found.verdict if whole or found.verdict == "not" else "partly"
    ours = f"{found.ours} at rate {best.rate:g}, the best of {', '.join(f'{r:g}' for r in rates)}"
    return Judgement(
        claim, verdict, ours, found.n, found.z, found.p, found.setup, (own, *_dropouts(group))
    )


def _compared(
    claim: Claim, own: Condition, other: Condition, mine: list[float], its: list[float]
) -> Judgement:
    z, p = rank_sum(mine, its)
    low, high = float(np.median(mine)), float(np.median(its))
    like = _like_the_paper(own, other)
    if claim.expected == "alike":
        seen = p < _SURE
        verdict = "not" if seen else "reproduced" if like else "partly"
    else:
        right, sure = low < high, p < _SURE
        verdict = "not" if not right else "reproduced" if sure and like else "partly"
    if not claim.claimed:
        verdict = "no difference seen" if p >= _SURE else "better" if z > 0 else "worse"
    ours = f"{words.number(low)} against {words.number(high)}"
    if claim.of.array is not None:
        ours = f"{low / high - 1:+.1%}"
    counts = f"{len(mine)}, {len(its)}"
    setup = words.setup(own.settings)
    return Judgement(claim, verdict, ours, counts, f"{z:.2f}", f"{p:.2g}", setup, (own, other))


def _above(claim: Claim, group: Sequence[Condition]) -> Judgement:
    own = _one(claim.own, group)
    assert own is not None
    mine = values(own, claim.of)
    median = float(np.median(mine))
    verdict = "not"
    if median > claim.bound:
        verdict = "reproduced" if _like_the_paper(own) else "partly"
    setup = words.setup(own.settings)
    return Judgement(
        claim, verdict, words.number(median), str(len(mine)), setup=setup, conditions=(own,)
    )


def _rises(claim: Claim, group: Sequence[Condition]) -> Judgement:
    """Correlate α, that of dropout being infinite, with what is measured: Spearman's ρ."""
    alike = [one for one in group if one.is_papers and one.rate == claim.own.rate]
    series = [one for one in alike if one.layer in ("qsd", "dropout")]
    series.sort(key=lambda one: one.alpha)
    pairs = [(one.alpha, value) for one in series for value in values(one, claim.of)]
    alphas, mine = zip(*pairs, strict=True)
    ranks = [sorted({*alphas}).index(alpha) for alpha in alphas]
    rho, p = stats.spearmanr(ranks, [min(value, 1e300) for value in mine])
    like = _like_the_paper(*series) and {a for a in alphas if a < inf} >= {*series[0].plan.alphas}
    verdict = "not"
    if rho > 0:
        verdict = "reproduced" if p < _SURE and like else "partly"
    medians = [
        f"{_alpha(one)}: {words.number(float(np.median(values(one, claim.of))))}" for one in series
    ]
    runs = [len(one.runs) for one in series]
    counts = " to ".join(map(str, sorted({min(runs), max(runs)})))
    ours, setup = "; ".join(medians), words.setup(series[0].settings)
    return Judgement(
        claim, verdict, ours, counts, f"ρ = {rho:.2f}", f"{p:.2g}", setup, tuple(series)
    )


def _alpha(condition: Condition) -> str:
    return "dropout" if condition.alpha == inf else f"α {condition.alpha:g}"


def _like_the_paper(*conditions: Condition) -> bool:
    return all(
        len(one.runs) >= RUNS and not words.setup(one.settings) and not one.diverged
        for one in conditions
    )
