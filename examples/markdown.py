"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

__all__ = ["cell", "table"]


def table(rows: Iterable[dict[str, str]], nothing: Container[str] = ("",)) -> str:
    """Return a table of some rows, without the columns in which there is nothing.

    Examples
    --------
    >>> print(table([{"n": "3", "note": ""}, {"n": "4", "note": ""}]))
    | n |
    | --- |
    | 3 |
    | 4 |
    """
    rows = list(rows)
    header = [name for name in rows[0] if any(row[name] not in nothing for row in rows)]
    lines = [header, ["---"] * len(header), *([row[name] for name in header] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any, form: str) -> str:
    """Return a value in a format, and a dash for what there is not."""
    return "–" if value is None else format(value, form)
