"""The runs of a folder, as they stand there: finished, under way or diverged."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path
from typing import Any

from examples.experiments import EXPERIMENTS, LAYERS
from examples.settings import BACKENDS, Settings

__all__ = ["Record", "collect"]


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


def collect(runs: Path) -> list[Record]:
    """Read all runs below a folder, finished or not; a single run's own folder will do."""
    paths = [path for path in runs.resolve().rglob("config.json") if path.parent.match("seed-*")]
    return sorted((_read(path.parent) for path in paths), key=lambda run: _order(run.settings))


def _read(folder: Path) -> Record:
    metrics, result = folder / "metrics.jsonl", folder / "result.json"
    # The last line may be in the middle of being written.
    lines = metrics.read_text().split("\n")[:-1] if metrics.exists() else []
    score = json.loads(result.read_text())["score"] if result.exists() else None
    settings = Settings.read(folder / "config.json")
    return Record(folder, settings, [json.loads(line) for line in lines], score)


def _order(settings: Settings) -> tuple[Any, ...]:
    places = (
        [*EXPERIMENTS].index(settings.experiment),
        BACKENDS.index(settings.backend),
        LAYERS.index(settings.layer),
    )
    rest = (settings.epochs, settings.limit or inf, settings.precision, settings.stream)
    return (*places, settings.rate, settings.alpha, *rest, settings.seed)
