"""What was measured, as rows in a JSON file for each suite."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Result", "Row", "combine"]


@dataclass(frozen=True)
class Row:
    """One measurement: what was measured, the values, and how far two runs of it differ.

    A spread is the difference between the runs' values, relative to the one that is reported.
    """

    what: dict[str, Any]
    values: dict[str, float]
    spread: dict[str, float] = field(default_factory=dict)


def combine(processes: Iterable[tuple[int, Iterable[Row]]]) -> list[Row]:
    """Return one row for all that processes, each of a run, have measured of the same.

    A value is the median of all processes. Its spread is how far the medians of the runs differ:
    what a reader must expect who runs it all once more.
    """
    together: dict[str, dict[int, list[Row]]] = {}
    for run, rows in processes:
        for row in rows:
            what = json.dumps(row.what, sort_keys=True)
            together.setdefault(what, {}).setdefault(run, []).append(row)
    return [_combined(list(runs.values())) for runs in together.values()]


def _combined(runs: list[list[Row]]) -> Row:
    what, names = runs[0][0].what, runs[0][0].values
    values, spread = {}, {}
    for name in names:
        found = [[row.values[name] for row in rows] for rows in runs]
        values[name] = statistics.median(itertools.chain(*found))
        if len(runs) > 1 and values[name] > 0:
            medians = [statistics.median(one) for one in found]
            spread[name] = (max(medians) - min(medians)) / values[name]
    return Row(what, values, spread)


@dataclass(frozen=True)
class Result:
    """All rows of a suite, and what the reader must know of their making."""

    suite: str
    header: dict[str, Any]
    rows: list[Row]

    def find(self, **what: Any) -> list[Row]:
        """Return the rows of which all this is true."""
        return [row for row in self.rows if what.items() <= row.what.items()]

    def one(self, **what: Any) -> Row | None:
        """Return the only such row, or None; more than one is a mistake of the caller."""
        found = self.find(**what)
        if len(found) > 1:
            raise ValueError(f"{len(found)} rows of suite {self.suite} are {what}")
        return found[0] if found else None

    def write(self, folder: Path) -> Path:
        """Write a file named after the suite, a row on each line, so that changes are readable."""
        lines = ",\n".join("  " + json.dumps(_short(asdict(row))) for row in self.rows)
        header = json.dumps({"suite": self.suite, "header": self.header}, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.suite}.json"
        path.write_text(f'{header[:-2]},\n "rows": [\n{lines}\n ]\n}}\n')
        return path

    @classmethod
    def read(cls, path: Path) -> Result:
        """Read what `write` wrote."""
        stored = json.loads(path.read_text())
        return cls(stored["suite"], stored["header"], [Row(**row) for row in stored["rows"]])


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """Round to the digits that mean something."""
    for part in ("values", "spread"):
        row[part] = {
            name: value if isinstance(value, int) else float(f"{value:.5g}")
            for name, value in row[part].items()
        }
    return row
