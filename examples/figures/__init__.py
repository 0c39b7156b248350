"""The paper's figures from a folder of runs, and the demo's, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from examples.figures import theory
from examples.figures.paper import FIGURES, learning
from examples.figures.style import Row, compose, save
from examples.records import Record, collect
from examples.settings import Settings
from examples.statistics import Condition, conditions, measures
from quantal._errors import wrong_value

__all__ = ["comparison", "draw"]


def draw(records: Iterable[Record], out: Path) -> tuple[list[Path], dict[str, str]]:
    """Draw the paper's figures for which there are finished runs.

    One of each for every backend, and for every way in which runs differ from the paper's, as in
    ``figure-2-torch-3-epochs``. The diamonds are the paper's medians.

    Returns
    -------
    list of path
        What was written.
    dict
        The figures left out, and why.
    """
    figures = {"figure-1": theory.densities(), "figure-A1": theory.mean_coefficients()}
    left_out = {}
    variants: dict[str, list[Condition]] = {}
    for settings, condition in conditions(records).items():
        variants.setdefault(_variant(settings), []).append(condition)
    for name, parts in FIGURES.items():
        drawn = {variant: _rows(own, parts) for variant, own in variants.items()}
        for variant, rows in drawn.items():
            if rows:
                figures[f"{name}-{variant}"] = compose(rows)
        if not any(drawn.values()):
            left_out[name] = f"no finished runs of {' or '.join(parts)} for it"
    written = []
    for name in sorted(figures):
        paths = [out / f"{name}.{kind}" for kind in ("png", "svg")]
        save(figures[name], *paths)
        written += paths
    return written, left_out


def comparison(runs: Path, path: Path, *, experiment: str = "digits-mlp") -> Path:
    """Draw the test curves of one experiment to a file, of the format that its name says."""
    found = conditions(collect(runs)).values()
    own = [condition for condition in found if condition.settings.experiment == experiment]
    if not own:
        raise wrong_value("runs", f"a folder with finished runs of {experiment}", str(runs))
    save(compose(learning(own, measures(own[0].plan)), height=2.9), path)
    return path


def _rows(own: list[Condition], parts: dict) -> list[Row]:
    return [
        row
        for experiment, rows_of in parts.items()
        for row in rows_of([c for c in own if c.settings.experiment == experiment])
    ]


def _variant(settings: Settings) -> str:
    """Return the backend and what differs from the paper, as a word."""
    parts = {
        settings.backend: True,
        f"{settings.epochs}-epochs": settings.epochs != settings.plan.epochs,
        f"limit-{settings.limit}": settings.limit,
        settings.precision: settings.precision != "float32",
        "portable": settings.stream == "portable",
    }
    return "-".join(word for word, there in parts.items() if there)
