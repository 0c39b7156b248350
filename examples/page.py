"""The page of results: each claim of the paper beside what the runs of a folder show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples import words
from examples.claims import Who, who
from examples.comparison import Condition, all_measures, conditions, dropout_of, quartiles
from examples.experiments import EXPERIMENTS, Experiment
from examples.folder import read_versions
from examples.judgement import LEAST, RUNS, Found, Judgement, judge
from examples.left_open import left_open
from examples.markdown import cell, table
from examples.records import Records, under_way

__all__ = ["page"]

_HEAD = """\
# Results

`python -m examples report {runs} --page {page}` makes this page from the records in `{runs}`; \
none of our numbers is typed by hand. {counts}

How to read the verdicts:

- **reproduced**: runs like the paper's ({n} of each condition, all epochs, all data) show the \
effect, with P < 0.05 in the paper's own test.
- **partly**: the runs show the effect, but with P ≥ 0.05, or there are fewer or shorter runs than \
in the paper.
- **not**: the runs show something else. If the paper reports no difference, this means any \
difference with P < 0.05.
- **not run**: there are no runs, or they have less than {least:.0%} of the paper's epochs.

The test is the unpaired Wilcoxon rank-sum test without a correction for ties. Z is positive if \
the condition that is named first is lower; if {n} runs do not overlap with the other {n}, Z is \
3.36. The score of a run is the mean of its last 3 evaluations, and n is the number of runs of \
each condition. Times are sums over all runs that a row compares, on a machine that was doing \
other work as well. A click on a figure opens it in any size."""
_NOTHING = ("", "–")
_ORDER = ("not", "worse", "partly", "reproduced", "better", "no difference seen", "not run")


def page(records: Records, runs: Path, path: Path, pictures: dict[str, list[Path]]) -> str:
    """Return the page as Markdown.

    Parameters
    ----------
    records : Records
        What `collect` found.
    runs, path : path
        Where the records are, and where the page will be.
    pictures : dict
        The figures to show of each experiment, as seen from the page.
    """
    found = conditions([*records, *under_way(records)])
    judged = judge(found)
    head = _HEAD.format(
        runs=runs.as_posix(), page=path.as_posix(), n=RUNS, least=LEAST, counts=_counted(judged)
    )
    parts = [head, *_disagreements(judged), *_in_short(judged)]
    for name, plan in EXPERIMENTS.items():
        if plan.findings:
            own = {settings: c for settings, c in found.items() if settings.experiment == name}
            parts += [f"## {plan.title} (`{name}`)"]
            parts += _section(plan, [one for one in judged if one.claim.experiment == name], own)
            shown = pictures.get(name, [])
            parts += [_figure(picture) for picture in shown]
    parts += _machine(records)
    return "\n\n".join(parts) + "\n"


def _counted(judged: Sequence[Judgement]) -> str:
    """Say how many claims came to each verdict."""
    counts = Counter(one.verdict for one in judged if one.claim.claimed)
    return (
        f"Of the {sum(counts.values())} claims of the paper that are listed here, we reproduced "
        f"{counts['reproduced']}, reproduced {counts['partly']} partly, did not reproduce "
        f"{counts['not']}, and have not run {counts['not run']}."
    )


def _in_short(judged: Sequence[Judgement]) -> Iterator[str]:
    """Yield the paper's main claim, QSD below dropout, for each experiment that was run."""
    lines = [
        f"- {EXPERIMENTS[one.claim.experiment].title}, {one.claim.text}: {one.ours} (paper: "
        f"{one.claim.paper}), Z = {one.z}, n = {one.n}: **{one.verdict}**"
        for one in judged
        if one.claim.is_main and one.verdict != "not run"
    ]
    if lines:
        yield "## The main claims"
        yield "\n".join(lines)


def _disagreements(judged: Sequence[Judgement]) -> Iterator[str]:
    yield "## What does not agree with the paper"
    wrong = [one for one in judged if one.disagrees]
    if not wrong:
        yield "All claims that were run agree."
        return
    rows = ({"experiment": f"`{one.claim.experiment}`", **_line(one)} for one in wrong)
    yield table(rows, _NOTHING)


def _line(one: Judgement) -> dict[str, str]:
    claim = one.claim
    return {
        "claim": claim.text + ("" if claim.claimed else " *"),
        "paper": claim.paper,
        "ours": one.ours,
        "n": _unbroken(one.n),
        "Z": one.z,
        "paper's Z": claim.z or "–",
        "P": one.p,
        "verdict": f"**{one.verdict}**",
        "unlike the paper": one.setup,
    }


def _section(plan: Experiment, judged: Sequence[Judgement], own: Found) -> Iterator[str]:
    ordered = sorted(judged, key=lambda one: _ORDER.index(one.verdict))
    commands: dict[str, int] = {}
    yield table((_line(one) | _effort(one, commands) for one in ordered), _NOTHING)
    if any(not one.claim.claimed for one in judged):
        yield (
            "\\* The paper makes no such claim. *Better* and *worse* refer to the condition that "
            "is named first. What is compared at rate 0.1 was added after three runs of each had "
            "been seen, so its P is exploratory."
        )
    if not own:
        yield "Not run."
        return
    yield "\n".join(f"{number}. `{command}`" for command, number in commands.items())
    if plan.name == "mnist-mlp":
        yield from left_open(own)
    yield from _backends(plan, own)
    yield "### All conditions"
    yield table((_condition(condition) for condition in own.values()), _NOTHING)


def _effort(one: Judgement, commands: dict[str, int]) -> dict[str, str]:
    """Return what it took: commands, by their numbers in a list, and time; one narrow column."""
    if not one.conditions:
        return {"command: time": "–"}
    needed = dict.fromkeys(_command(several) for several in _joined(one.conditions))
    numbers = [str(commands.setdefault(line, len(commands) + 1)) for line in needed]
    times = [condition.seconds for condition in one.conditions]
    total = None if None in times else sum(time for time in times if time is not None)
    return {"command: time": f"{', '.join(numbers)}: {_unbroken(words.duration(total))}"}


def _unbroken(text: str) -> str:
    """Keep a short text on one line, however narrow its column is."""
    return text.replace(" ", "\u00a0")


def _joined(several: Sequence[Condition]) -> list[list[Condition]]:
    """Put together what one sweep can do: the same but for the layer."""
    groups: dict[tuple, list[Condition]] = {}
    for condition in several:
        own = condition.settings
        key = (own.rate, own.unit_mean, own.shared_p)
        groups.setdefault(key, []).append(condition)
    return [*groups.values()]


def _command(several: Sequence[Condition]) -> str:
    own = several[0].settings
    layers = dict.fromkeys(c.layer for c in several)
    alphas = dict.fromkeys(f"{c.settings.alpha:g}" for c in several if c.settings.alpha is not None)
    seeds = max(len(c.runs) for c in several)
    line = f"python -m examples sweep {own.experiment} --backend {own.backend}"
    line += "" if own.keras_backend is None else f" --keras-backend {own.keras_backend}"
    line += f" --layer {' '.join(layers)}"
    line += "" if own.rate is None else f" --rate {own.rate:g}"
    line += f" --alpha {' '.join(alphas)}" if alphas else ""
    flags = {
        name: any(getattr(c.settings, name) for c in several) for name in ("unit_mean", "shared_p")
    }
    line += "".join(f" --{name.replace('_', '-')}" for name, on in flags.items() if on)
    line += "" if own.variant is None else f" --variant {own.variant}"
    line += "" if own.epochs == own.plan.epochs else f" --epochs {own.epochs}"
    line += "" if own.limit is None else f" --limit {own.limit}"
    line += "" if own.precision == "float32" else f" --precision {own.precision}"
    line += "" if own.stream == "native" else f" --stream {own.stream}"
    return f"{line} --seeds {seeds}"


def _condition(condition: Condition) -> dict[str, str]:
    settings, plan = condition.settings, condition.plan
    row = {
        "backend": words.backend(settings),
        "condition": words.layer(settings),
        "rate": cell(settings.rate, "g"),
        "n": str(len(condition.runs)),
        "diverged": str(condition.diverged or "–"),
    }
    for measure in all_measures(plan):
        low, median, high = map(words.number, quartiles([*condition.scores(measure).values()]))
        row[words.measure(measure, rmse=plan.error == "rmse")] = f"{median} ({low} to {high})"
    return row | {
        "time": _unbroken(words.duration(condition.seconds)),
        "unlike the paper": words.setup(settings),
    }


def _backends(plan: Experiment, own: Found) -> Iterator[str]:
    """Yield QSD against dropout in each backend, if there are several."""
    pairs = [
        (condition, dropout)
        for condition in own.values()
        if who(condition.settings) == Who("qsd", plan.rate, plan.alpha)
        and (dropout := dropout_of(condition, own)) is not None
    ]
    if len(pairs) < 2:
        return
    yield "### Backends"
    yield table(_against(c.settings.plan, c, d) for c, d in pairs)


def _against(plan: Experiment, qsd: Condition, dropout: Condition) -> dict[str, str]:
    runs = _unbroken(f"{len(qsd.runs)}, {len(dropout.runs)}")
    row = {"backend": words.backend(qsd.settings), "n": runs}
    for measure in all_measures(plan):
        title = words.measure(measure, rmse=plan.error == "rmse")
        medians = [quartiles([*c.scores(measure).values()])[1] for c in (qsd, dropout)]
        test = qsd.against(dropout, measure)
        row[f"{title}: QSD, dropout"] = ", ".join(map(words.number, medians))
        row[f"Z, P of {title}"] = f"{test.z:.2f}, {test.p:.2g}"
    return row | {"unlike the paper": words.setup(qsd.settings)}


def _figure(picture: Path) -> str:
    """Return a picture that leads to itself in any size."""
    return f"[![{picture.stem}]({picture.as_posix()})]({picture.with_suffix('.svg').as_posix()})"


def _machine(records: Records) -> Iterator[str]:
    """Yield what computed the runs."""
    yield "## Software and machine"
    rows: dict[tuple[str, ...], int] = {}
    for record in records:
        versions = read_versions(record.folder).items()
        said = ", ".join(f"{name} {version}" for name, version in versions)
        key = (words.backend(record.settings), said or "not recorded")
        rows[key] = rows.get(key, 0) + 1
    yield table(
        {"backend": backend, "runs": str(count), "versions": said}
        for (backend, said), count in rows.items()
    )
