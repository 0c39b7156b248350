"""Small records of runs, to keep with the project: all that a report is made of."""

from __future__ import annotations

import shutil
from pathlib import Path

from examples import summaries
from examples.files import refuse_links
from examples.records import Record, Records, collect
from quantal._errors import wrong_value

__all__ = ["export"]

# As they are: nothing of a record is changed.
_COPIED = ("config.json", "versions.json", "metrics.jsonl", "times.jsonl", "result.json")


def export(runs: Path, out: Path) -> Records:
    """Write the small record of each run below a folder to the same place below another.

    Of the sparse-encoding measurements, it has a summary: ``summary.npz``. A report of the records
    has the tables and figures of a report of the runs. What is damaged is left out.

    Parameters
    ----------
    runs : path
        A folder with runs in it, finished or not.
    out : path
        The folder to write to; records of other runs there stay.
    """
    if out.resolve().is_relative_to(runs.resolve()):
        raise wrong_value("out", "a folder that is not among the runs", str(out))
    records = collect(runs)
    if not records and not records.damaged:
        raise wrong_value("runs", "a folder with runs in it", str(runs))
    for record in records:
        if record.metrics:
            _write(record, out / record.settings.name, out)
    return records


def _write(record: Record, folder: Path, out: Path) -> None:
    refuse_links(folder, out)
    folder.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        if (record.folder / name).exists():
            shutil.copyfile(record.folder / name, folder / name)
    if measured := summaries.load(record.folder):
        summaries.write(measured, folder)
