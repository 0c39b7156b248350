"""The folder of a run: what lies in it, and whether that can be trusted.

| file | |
|---|---|
| ``config.json``, ``versions.json`` | the settings, and what computed them |
| ``metrics.jsonl`` | a line an epoch, from 0, without a gap |
| ``times.jsonl`` | the seconds of each epoch, again for those that were run again |
| ``checkpoint-N`` | the state after N epochs; ``checkpoint-N.sha256`` is its checksum |
| ``sparse.npz`` | the sparse-encoding measurements |
| ``result.json`` | the score: the run has ended |
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from math import inf, isclose, isfinite, isnan, nan
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from examples.files import checksums, parsed
from examples.settings import Settings

__all__ = [
    "DamagedError",
    "checked_checkpoint",
    "checkpoints",
    "has_metrics",
    "read_metrics",
    "read_result",
    "read_settings",
    "read_times",
    "read_versions",
    "refuse_other_settings",
    "score",
]

LAST = 3  # a run's score is the mean of so many last evaluations
_NO_SCORES = ("epoch", "learning_rate")
_NO_MATTER = ("device", "devices")  # where a run is trained

Lines = list[dict[str, Any]]


class DamagedError(ValueError):
    """What a folder holds is not what a run has written there."""

    def __init__(self, path: Path, expected: str, found: object) -> None:
        super().__init__(f"{path} is damaged: expected {expected}. Found: {str(found)[:300]}")


def score(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the mean of each measure over the last evaluations."""
    names = [name for name in lines[-1] if name not in _NO_SCORES]
    last = lines[-LAST:]
    return {name: float(np.mean([line.get(name, nan) for line in last])) for name in names}


def read_settings(folder: Path) -> Settings:
    """Return what defines the run."""
    path = folder / "config.json"
    try:
        return Settings.read(path)
    except (ValueError, TypeError) as error:
        raise DamagedError(path, "the settings of a run", error) from error


def refuse_other_settings(folder: Path, settings: Settings) -> None:
    """Fail if a folder holds another run; its name does not tell all, and rounds."""
    if not (folder / "config.json").exists():
        return
    there = read_settings(folder)
    for name in (field.name for field in fields(Settings) if field.name not in _NO_MATTER):
        old, new = getattr(there, name), getattr(settings, name)
        if old != new:
            raise ValueError(
                f"{folder} holds a run with {name}={old!r}, not {new!r}: give another --out, or "
                "remove that folder"
            )


def read_metrics(folder: Path) -> Lines:
    """Return one dictionary for each recorded epoch; a line that was not ended is left out."""
    path = folder / "metrics.jsonl"
    lines = _lines(path)
    for epoch, line in enumerate(lines):
        if line.get("epoch") != epoch:
            raise DamagedError(path, f"epoch {epoch} in line {epoch + 1}", line.get("epoch"))
        for name in dict.fromkeys(("train_cost", "test_cost", *line)):
            if not _is_number(line.get(name)):
                raise DamagedError(path, f"{name} in line {epoch + 1}, a number", line.get(name))
    return lines


def has_metrics(folder: Path) -> bool:
    """Return whether an epoch has come to its end."""
    path = folder / "metrics.jsonl"
    return path.exists() and path.stat().st_size > 0


def read_result(folder: Path, epochs: int) -> dict[str, Any] | None:
    """Return the end of a run of so many epochs, None if it has not come."""
    path = folder / "result.json"
    if not path.exists():
        return None
    result, lines = _dictionary(path, path.read_bytes()), read_metrics(folder)
    if len(lines) != epochs:
        raise DamagedError(
            folder / "metrics.jsonl", f"{epochs} epochs of a finished run", len(lines)
        )
    found = result.get("score")
    expected = score(lines)
    if not isinstance(found, dict) or found.keys() != expected.keys():
        raise DamagedError(path, f"a score with {', '.join(expected)}", found)
    for name, value in expected.items():
        if not _same(found[name], value):
            raise DamagedError(path, f"{name} {value:g}, as in metrics.jsonl", found[name])
    return result


def read_times(folder: Path) -> Lines:
    """Return the times of the epochs; none where they were not recorded.

    ``together`` says how many seeds were trained at once, in that same time.
    """
    try:
        lines = _lines(folder / "times.jsonl")
    except (DamagedError, OSError):  # no score depends on them
        return []
    return lines if all(map(_is_time, lines)) else []


def read_versions(folder: Path) -> dict[str, Any]:
    """Return what computed the run, by name; nothing where it was not recorded."""
    path = folder / "versions.json"
    return _dictionary(path, path.read_bytes()) if path.exists() else {}


def checkpoints(folder: Path) -> dict[int, Path]:
    """Return the states that a folder holds, by the number of epochs before them."""
    found = ((re.fullmatch(r"checkpoint-(\d+)", path.name), path) for path in folder.glob("*"))
    return {int(match[1]): path for match, path in found if match}


def checked_checkpoint(path: Path) -> Path:
    """Return a checkpoint, if it is what was saved."""
    written = path.with_name(path.name + ".sha256")
    if not written.exists():
        raise DamagedError(path, f"its checksum in {written.name}", "none")
    if checksums(path, path.name).encode() != written.read_bytes():
        raise DamagedError(path, f"the checksum in {written.name}", "another")
    return path


def _same(one: Any, other: float) -> bool:
    if not _is_number(one):
        return False
    return isclose(one, other, rel_tol=1e-9) or (isnan(one) and isnan(other))


def _is_number(value: Any) -> TypeGuard[int | float]:
    """Return whether JSON says a number that a float can hold: True is none, nor is 10⁴⁰⁰."""
    try:
        return type(value) is float or (type(value) is int and isfinite(value))
    except OverflowError:
        return False


def _is_time(line: dict[str, Any]) -> bool:
    epoch, seconds, together = map(line.get, ("epoch", "seconds", "together"), (None, None, 1))
    if not (type(epoch) is int and _is_number(seconds) and _is_number(together)):
        return False
    return 0 <= seconds < inf and together >= 1


def _lines(path: Path) -> Lines:
    if not path.exists():
        return []
    # A process killed while it wrote leaves a last line without an end.
    return [_dictionary(path, line) for line in path.read_bytes().split(b"\n")[:-1]]


def _dictionary(path: Path, text: bytes) -> dict[str, Any]:
    try:
        found = parsed(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DamagedError(path, "JSON", text[:40].decode(errors="replace"))
    return found
