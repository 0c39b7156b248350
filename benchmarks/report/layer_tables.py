"""The tables of one framework's layers."""

from __future__ import annotations

from benchmarks import layers
from benchmarks.report import notes
from benchmarks.report.markdown import number, power, ratio, table
from benchmarks.store import Result, Row

__all__ = ["section"]


def section(result: Result, plot: str) -> list[str]:
    """Return what the page says about a framework."""
    parts = []
    for mode in _seen(result, "mode", group="all"):
        parts.append(f"{_capital(mode)}, float32: nanoseconds per element, then ratios.")
        parts += _by_size(result, group="all", mode=mode)
    parts.append(f"![Cost of an element against the number of elements]({plot})")
    parts.append(notes.KNEES[result.suite])
    for mode in _seen(result, "mode", group="slow"):
        parts.append(f"The samplers that quantal does not need, {mode}. Ratios are to QSD.")
        parts += _by_size(result, group="slow", mode=mode)
    if result.find(group="dtypes"):
        parts.append("QSD in other precisions, as ratios to the own dropout in the same precision:")
        parts.append(_dtypes(result))
    if result.find(group="default"):
        parts.append(notes.DEFAULT_MEMORY)
    for mode in _seen(result, "mode", group="default"):
        parts.append(f"{_capital(mode)}, with the default memory settings of glibc:")
        parts += _by_size(result, group="default", mode=mode)
    return parts


def _capital(mode: str) -> str:
    return mode[0].upper() + mode[1:]  # XLA stays XLA


def _seen(result: Result, name: str, **what: str) -> list[str]:
    return list(dict.fromkeys(str(row.what[name]) for row in result.find(**what)))


def _by_size(result: Result, **what: str) -> list[str]:
    """Return two tables with a column for each number of elements: times, and ratios."""
    sizes = sorted({int(row.what["size"]) for row in result.find(**what)})
    times, ratios = [], []
    for name in _seen(result, "candidate", **what):
        rows = [result.one(**what, candidate=name, size=size) for size in sizes]
        times.append([name, *("" if row is None else number(row.values["ns"]) for row in rows)])
        if any(row is not None and row.what["baseline"] != name for row in rows):
            ratios.append([name, *map(ratio, rows)])
    columns = [power(size) for size in sizes]
    return [table(["ns per element", *columns], times), table(["ratio", *columns], ratios)]


def _dtypes(result: Result) -> str:
    rows: list[Row] = result.find(group="dtypes", candidate=layers.QSD)
    lines = []
    for mode, dtype in dict.fromkeys((row.what["mode"], row.what["dtype"]) for row in rows):
        found = (
            result.one(group="dtypes", candidate=layers.QSD, mode=mode, dtype=dtype, size=size)
            for size in layers.CHOSEN
        )
        lines.append([f"{dtype}, {mode}", *map(ratio, found)])
    return table(["", *map(power, layers.CHOSEN)], lines)
