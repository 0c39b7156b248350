"""The runs of a folder, as they stand there: finished, under way, diverged or damaged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from pathlib import Path
from typing import Any

from examples import summaries
from examples.experiments import EXPERIMENTS, LAYERS
from examples.folder import (
    read_metrics,
    read_result,
    read_settings,
    read_times,
    read_versions,
    score,
)
from examples.settings import BACKENDS, KERAS_BACKENDS, Settings
from quantal._errors import wrong_value

__all__ = ["Record", "Records", "collect", "under_way"]


@dataclass(frozen=True)
class Record:
    """What a run has left in its folder; ``score`` is None until it is finished."""

    folder: Path
    settings: Settings
    metrics: list[dict[str, Any]]
    score: dict[str, float] | None

    @property
    def diverged(self) -> bool:
        """Whether the run has ended without a number for its cost."""
        return self.score is not None and not isfinite(self.score["test_cost"])

    @cached_property
    def seconds(self) -> float | None:
        """How long the run took, its share if several were trained at once; None if unknown."""
        times = read_times(self.folder)
        if {line.get("epoch") for line in times} < {*range(len(self.metrics))}:
            return None
        return sum(line["seconds"] / line.get("together", 1) for line in times)


class Records(list[Record]):
    """Runs in the order of the tables; ``damaged`` are the folders that were left out, and why."""

    damaged: dict[Path, str]


def collect(runs: Path) -> Records:
    """Read all runs below a folder, finished or not; a single run's own folder will do."""
    found, damaged = [], {}
    root = runs.resolve()
    for folder in sorted(path.parent for path in root.rglob("config.json")):
        if folder.match("seed-*"):
            try:
                found.append(_read(folder))
            except (ValueError, OSError) as error:
                damaged[folder.relative_to(root)] = str(error)
    records = Records(sorted(found, key=lambda run: _order(run.settings)))
    records.damaged = damaged
    _refuse_copies(records)
    return records


def under_way(records: Iterable[Record]) -> list[Record]:
    """Return unfinished runs as if they had ended, those to be compared after equally many epochs.

    Where one of those has ended, the others are not cut short with it.
    """
    groups: dict[Settings, list[Record]] = {}
    ended = set()
    for record in records:
        key = _alike(record.settings)
        if record.score is not None:
            ended.add(key)
        elif record.metrics:
            groups.setdefault(key, []).append(record)
    found = []
    for key, own in groups.items():
        if key not in ended:
            epochs = min(len(record.metrics) for record in own)
            found += [_until(record, epochs) for record in own]
    return found


def _alike(settings: Settings) -> Settings:
    """Return the same settings for all conditions and seeds that belong to one comparison."""
    return settings.but(layer="none", seed=0, device="auto", devices=1)


def _until(record: Record, epochs: int) -> Record:
    lines = record.metrics[:epochs]
    settings = record.settings.but(epochs=epochs)
    return replace(record, settings=settings, metrics=lines, score=score(lines))


def _read(folder: Path) -> Record:
    settings = read_settings(folder)
    result = read_result(folder, int(settings.epochs or 0))
    for read in (summaries.load, read_versions):  # is damaged, or not
        read(folder)
    return Record(folder, settings, read_metrics(folder), result and result["score"])


def _refuse_copies(records: Records) -> None:
    seen: dict[Settings, Path] = {}
    for record in records:
        key = record.settings.but(device="auto", devices=1)
        if key in seen:
            same = f"{seen[key]} and {record.folder}"
            raise wrong_value("runs", "a folder with each run once", same)
        seen[key] = record.folder


def _order(settings: Settings) -> tuple[Any, ...]:
    places = (
        [*EXPERIMENTS].index(settings.experiment),
        BACKENDS.index(settings.backend),
        ("", *KERAS_BACKENDS).index(settings.keras_backend or ""),
        settings.variant or "",
        LAYERS.index(settings.layer),
    )
    parameters = (
        settings.rate or 0.0,
        settings.alpha or inf,
        settings.unit_mean,
        settings.shared_p,
    )
    rest = (settings.epochs, settings.limit or inf, settings.precision, settings.stream)
    return (*places, *parameters, *rest, settings.seed)
