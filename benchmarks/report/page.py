"""Makes ``docs/benchmarks.md`` and its plots from the results."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.law import floor
from benchmarks.report import bars, layer_tables, notes, other_tables, plots
from benchmarks.report.markdown import number, table
from benchmarks.runner import SUITES
from benchmarks.store import Result

__all__ = ["load", "text", "write"]

Results = Mapping[str, Result]


def load(folder: Path) -> dict[str, Result]:
    """Read every result of a folder, in the order of the suites."""
    found = {name: folder / f"{name}.json" for name in SUITES}
    return {name: Result.read(path) for name, path in found.items() if path.exists()}


def write(folder: Path) -> Path:
    """Write the plots beside the results, and the page beside their folder; return the page."""
    results = load(folder)
    if not results:
        raise SystemExit(f"no results in {folder}: python -m benchmarks run")
    for name, result in results.items():
        if name in notes.KNEES:
            plots.growth(result, folder / f"{name}.png")
    if "law" in results:
        plots.law(results["law"], law_floor(results["law"]), folder / "law.png")
    page = folder.with_suffix(".md")
    page.write_text(text(results, folder.name))
    return page


def text(results: Results, plots_in: str) -> str:
    """Return the page."""
    parts = [
        "# Benchmarks",
        "`python -m benchmarks page` makes this page from the results in "
        f"[`{plots_in}/`]({plots_in}). Do not edit it.",
    ]
    if any(result.header["quick"] for result in results.values()):
        parts.append("**Measured with `--quick`: these figures mean nothing.**")
    parts += [notes.HOW, _machines(results)]
    if results.keys() == SUITES.keys():
        parts.append(_duration(results))
    parts += ["## Targets", _bars(results)]
    parts += ["## Cost of a layer", notes.COST]
    for suite, name in notes.NAMES.items():
        if suite in results:
            parts.append(f"### {name}")
            parts += [notes.OWN[suite], _command(results[suite])]
            parts += layer_tables.section(results[suite], f"{plots_in}/{suite}.png")
    sections = {
        "breakdown": ("Where the time goes", other_tables.breakdown),
        "training": ("A training step", other_tables.training),
        "memory": ("Memory", other_tables.memory),
        "fixed": ("Fixed costs", other_tables.fixed),
        "schedule": ("A new law in each step", other_tables.schedule),
        "law": ("Who draws the right law", lambda result: _law(result, plots_in)),
    }
    for suite, (title, section) in sections.items():
        if suite in results:
            parts += [f"## {title}", _command(results[suite]), *section(results[suite])]
    return "\n\n".join(parts) + "\n"


def law_floor(result: Result) -> float:
    """Return the distance above which a right law is not believed."""
    return floor(int(result.rows[0].values["draws"]), len(result.rows))


def _law(result: Result, plots_in: str) -> list[str]:
    limit, draws = law_floor(result), result.rows[0].values["draws"]
    noise = (
        f"{draws:,.0f} draws for each number; a correct implementation stays below {number(limit)}."
    )
    plot = f"![Kolmogorov distance against α, by implementation]({plots_in}/law.png)"
    return [notes.LAW, noise, plot, *other_tables.law(result, limit)]


def _command(result: Result) -> str:
    header = result.header
    runs, processes = header["runs"], header["processes"]
    repeats = f"{runs} runs of {processes} process{'es' * (processes > 1)}, " if runs > 1 else ""
    return f"`{header['command']}` ({repeats}{header['seconds']} s)"


def _machines(results: Results) -> str:
    """Return what the figures were measured on; suites measured alike share a line."""
    lines: dict[str, list[str]] = {}
    for name, result in results.items():
        h = result.header
        versions = ", ".join(f"{package} {version}" for package, version in h["versions"].items())
        machine = (
            f"{h['device']}; {h['processor']}, {h['threads']} of {h['cores']} cores, "
            f"{', '.join(h['caches'])}, {h['memory']}, {h['system']}; {versions}; {h['date']}"
        )
        lines.setdefault(machine, []).append(f"{name} ({h['load at the start']})")
    shown = [
        f"- {machine}. Suites, with the load of the machine when each began: {', '.join(suites)}."
        for machine, suites in lines.items()
    ]
    return "\n".join(shown)


def _duration(results: Results) -> str:
    minutes = sum(result.header["seconds"] for result in results.values()) / 60
    return f"`nox -s bench` runs all of this. It took {minutes:.0f} minutes."


def _bars(results: Results) -> str:
    verdicts = bars.judge(results)
    rows, missed = [], []
    for verdict in verdicts:
        bar = verdict.bar
        limit = f"{'≥' if bar.at_least else '≤'} {bar.limit:g} {bar.unit}".strip()
        spread = "" if verdict.spread is None else f"{verdict.spread:.0%}"
        command = f"`nox -s bench -- {bar.suite}`"
        rows.append([bar.title, limit, number(verdict.value), spread, verdict.word, command])
        if verdict.value is not None and not bar.holds(verdict.value):
            missed.append(f"- **{bar.title}**: {number(verdict.value)}. {_why(bar)}")
    wide, all_of_them = bars.unsteady(results)
    steady = f"Two runs differ by more than 10% in {wide} of the {all_of_them} ratios on this page."
    header = ["what", "target", "measured", "spread", "", "command"]
    return "\n\n".join([table(header, rows), steady, *(["\n".join(missed)] if missed else [])])


def _why(bar: bars.Bar) -> str:
    """Return why a bar is missed; Keras inherits the reasons of its backend."""
    which = bar.what.get("size", bar.what.get("framework", bar.value))
    for suite in (bar.suite, bar.suite.removeprefix("keras-")):
        if (suite, which) in notes.WHY and not bar.at_least:
            return notes.WHY[suite, which]
    return "Not explained yet."
