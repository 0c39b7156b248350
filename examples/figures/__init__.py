"""The paper's figures from a folder of runs, and the demo's, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from examples.comparison import Condition, conditions, measures
from examples.figures import theory
from examples.figures.paper import FIGURES, learning
from examples.figures.style import Row, compose, save
from examples.records import Record, collect, under_way
from examples.settings import Settings
from quantal._errors import wrong_value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison", "draw", "of_experiments"]


def draw(
    records: Iterable[Record], out: Path, only: Container[str] | None = None
) -> tuple[list[Path], dict[str, str]]:
    """Draw the paper's figures for which there are runs, or only those of some names.

    One of each for every backend, and for every way in which runs differ from the paper's, as in
    ``figure-2-torch-3-epochs``. The diamonds are the paper's medians.

    Returns
    -------
    list of path
        What was written.
    dict
        The figures left out, and why.
    """
    figures: dict[str, Callable[[], Figure]] = {
        "figure-1": theory.densities,
        "figure-A1": theory.mean_coefficients,
    }
    left_out = {}
    variants = _variants(records)
    for name, parts in FIGURES.items():
        drawn = {variant: _rows(own, parts) for variant, own in variants.items()}
        for variant, rows in drawn.items():
            if rows:
                figures[f"{name}-{variant}"] = partial(compose, rows)
        if not any(drawn.values()):
            left_out[name] = f"no finished runs of {' or '.join(parts)} for it"
    written = []
    for name in sorted(figures if only is None else (name for name in figures if name in only)):
        paths = [out / f"{name}.{kind}" for kind in ("png", "svg")]
        save(figures[name](), *paths)
        written += paths
    return written, left_out


def of_experiments(records: Iterable[Record]) -> dict[str, list[str]]:
    """Return for each experiment the names of its figures, of the variant with the most runs."""
    variants = _variants(records)
    found: dict[str, list[str]] = {}
    for name, parts in FIGURES.items():
        for experiment in parts:
            counts = {
                variant: sum(len(c.runs) for c in own if c.settings.experiment == experiment)
                for variant, own in variants.items()
                if _rows(own, {experiment: parts[experiment]})
            }
            if counts:
                found.setdefault(experiment, []).append(
                    f"{name}-{max(counts, key=counts.__getitem__)}"
                )
    return found


def comparison(runs: Path, path: Path, *, experiment: str = "digits-mlp") -> Path:
    """Draw the test curves of one experiment to a file, of the format that its name says."""
    found = conditions(collect(runs)).values()
    own = [condition for condition in found if condition.settings.experiment == experiment]
    if not own:
        raise wrong_value("runs", f"a folder with finished runs of {experiment}", str(runs))
    save(compose(learning(own, measures(own[0].plan)), height=2.9), path)
    return path


def _variants(records: Iterable[Record]) -> dict[str, list[Condition]]:
    """Return what may be in one figure; of unfinished runs what they have."""
    records = list(records)
    found: dict[str, list[Condition]] = {}
    for settings, condition in conditions([*records, *under_way(records)]).items():
        found.setdefault(_variant(settings), []).append(condition)
    return found


def _rows(own: list[Condition], parts: dict) -> list[Row]:
    return [
        row
        for experiment, rows_of in parts.items()
        for row in rows_of([c for c in own if c.settings.experiment == experiment])
    ]


def _variant(settings: Settings) -> str:
    """Return the backend and what differs from the paper, as a word."""
    parts = {
        settings.software: True,
        f"{settings.variant}": settings.variant,
        f"{settings.epochs}-epochs": settings.epochs != settings.plan.epochs,
        f"limit-{settings.limit}": settings.limit,
        settings.precision: settings.precision != "float32",
        "portable": settings.stream == "portable",
    }
    return "-".join(word for word, there in parts.items() if there)
