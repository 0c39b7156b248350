"""Tables and numbers in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.report.bars import SPREAD
from benchmarks.store import Row

__all__ = ["number", "power", "ratio", "table", "time"]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    Examples
    --------
    >>> print(table(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = [header, ["---"] * len(header), *rows]
    text = [f"| {' | '.join(line)} |" for line in lines]
    text[1] = text[1].replace(" ", "")
    return "\n".join(text)


def number(value: float | None) -> str:
    """Return a number with three digits, or as many as it has before the point.

    Examples
    --------
    >>> number(0.4321), number(12.345), number(3396.2), number(None)
    ('0.432', '12.3', '3,396', '')
    """
    if value is None:
        return ""
    if value and abs(value) < 1e-3:
        return f"{value:.1e}"
    digits = 3 if abs(value) < 1 else 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"


def power(size: int) -> str:
    """Return a power of two as one.

    Examples
    --------
    >>> power(2**14)
    '2¹⁴'
    """
    digits = str(size.bit_length() - 1)
    return "2" + digits.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))


def ratio(row: Row | None, value: str = "ratio") -> str:
    """Return a ratio to the second digit at least, and a star if two runs of it disagree."""
    if row is None:
        return ""
    found = row.values[value]
    shown = f"{found:.2f}" if 0.1 <= found < 10 else number(found)
    return shown + (" \\*" if row.spread.get(value, 0) > SPREAD else "")


def time(seconds: float) -> str:
    """Return a time in a unit that suits it.

    Examples
    --------
    >>> time(2e-5), time(0.0123), time(7.5)
    ('20.0 µs', '12.3 ms', '7.50 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{number(seconds / size)} {unit}"
    return f"{number(seconds * 1e6)} µs"
