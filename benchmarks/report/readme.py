"""The README's table of costs."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import layers
from benchmarks.report import bars, page
from benchmarks.report.markdown import ratio
from benchmarks.report.markdown import table as markdown
from benchmarks.runner import ROOT

__all__ = ["put", "table", "write"]

START, END = "<!-- python -m benchmarks readme --write -->", "<!-- end of it -->"


def table(folder: Path) -> str:
    """Return the ratios of QSD to dropout, and where more is to be read."""
    verdicts = [v for v in bars.judge(page.load(folder)) if v.bar.what.get("group") == "all"]
    lines: dict[str, list[str]] = {}
    for verdict in verdicts:
        name = verdict.bar.title.rsplit(", ", 1)[0]
        shown = ratio(verdict.row) if verdict.row else "not measured"
        lines.setdefault(name, [name]).append(shown)
        if len(lines[name]) == 3:
            lines[name].append(f"`nox -s bench -- {verdict.bar.suite}`")
    shapes = [" × ".join(map(str, layers.shape(size))) for size in (layers.LARGE, layers.SMALL)]
    made = markdown(["", *shapes, "command"], lines.values())
    notes = "A star: two runs differ by more than 10%. " if "\\*" in made else ""
    notes += "All figures, and how they are measured: [Benchmarks](docs/benchmarks.md)."
    return f"{made}\n\n{notes}"


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
