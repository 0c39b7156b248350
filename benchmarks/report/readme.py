"""The README's table of costs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks import layers
from benchmarks.report import bars, page
from benchmarks.report.markdown import ratio
from benchmarks.report.markdown import table as markdown
from benchmarks.runner import ROOT
from benchmarks.store import Result

__all__ = ["put", "table", "write"]

START, END = "<!-- python -m benchmarks readme --write -->", "<!-- end of it -->"


def table(folder: Path) -> str:
    """Return the ratios of QSD to dropout, and where more is to be read."""
    results = page.load(folder)
    shapes = [" × ".join(map(str, layers.shape(size))) for size in (layers.LARGE, layers.SMALL)]
    header = ["a layer", *shapes, *(f"{shape}, memory kept" for shape in shapes), "command"]
    made = [markdown(header, _layers(results)), markdown(STEPS, _steps(results))]
    notes = (
        "A star (\\*) means that two runs differ by more than 10%. "
        if "\\*" in "".join(made)
        else ""
    )
    notes += "All figures, and how they are measured: see [Benchmarks](docs/benchmarks.md)."
    return "\n\n".join([*made, notes])


def _layers(results: Mapping[str, Result]) -> Iterable[list[str]]:
    """Yield the ratios of each layer: by the C library's own ways, and where it keeps memory."""
    lines: dict[str, tuple[list[str], list[str], str]] = {}
    for bar in (bar for bar in bars.BARS if bar.what.get("group") == "all"):
        default, kept, _ = lines.setdefault(
            bar.title.rsplit(", ", 1)[0], ([], [], f"`nox -s bench -- {bar.suite}`")
        )
        for group, shown in (("default", default), ("all", kept)):
            suite = results.get(bar.suite)
            what = bar.what | {"group": group, "dtype": "float32"}
            found = suite.one(**what) if suite else None
            shown.append(ratio(found) if found else "not measured")
    for name, (default, kept, command) in lines.items():
        yield [name, *default, *kept, command]


STEPS = ["a whole training step", "best of the models", "worst", "command"]


def _steps(results: Mapping[str, Result]) -> Iterable[list[str]]:
    """Yield the ratios of whole training steps."""
    for bar in (bar for bar in bars.BARS if bar.suite == "training"):
        suite = results.get("training")
        found = suite.find(**bar.what) if suite else []
        ends = sorted(found, key=lambda row: row.values["ratio"])
        shown = [ratio(ends[0]), ratio(ends[-1])] if ends else ["not measured"] * 2
        name = bar.title.removeprefix("Training step in ").split(",")[0]
        yield [name, *shown, "`nox -s bench -- training`"]


def put(text: str, made: str) -> str:
    """Return a text with the table between its markers."""
    between = re.compile(f"{re.escape(START)}.*{re.escape(END)}", re.DOTALL)
    if not between.search(text):
        raise ValueError(f"README.md: expected {START} and {END}. Received: neither or one")
    return between.sub(lambda _: f"{START}\n\n{made}\n\n{END}", text)


def write(folder: Path) -> None:
    """Put the table into the README."""
    readme = ROOT / "README.md"
    readme.write_text(put(readme.read_text(), table(folder)))
