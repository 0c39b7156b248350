"""The tables of one framework's layers."""

from __future__ import annotations

from benchmarks import layers, notes
from benchmarks.markdown import number, ratio, table
from benchmarks.store import Result, Row

__all__ = ["section"]


def section(result: Result, plot: str) -> list[str]:
    """Return what the page says about a framework."""
    parts = []
    for mode in _seen(result, "mode", group="all"):
        parts += [f"{_capital(mode)}, float32:", _by_size(result, group="all", mode=mode)]
    for mode in _seen(result, "mode", group="slow"):
        parts.append(f"The samplers that QSD does without, {mode}, as ratios to QSD:")
        parts.append(_by_size(result, group="slow", mode=mode))
    if result.find(group="dtypes"):
        parts += [
            "Other precisions, as ratios to the own dropout in the same one:",
            _dtypes(result),
        ]
    if result.find(group="growth"):
        parts.append(f"![Cost of an element against the number of elements]({plot})")
        parts.append(notes.KNEES[result.suite])
    for mode in _seen(result, "mode", group="default"):
        if mode == _seen(result, "mode", group="default")[0]:
            parts.append(notes.DEFAULT_MEMORY)
        parts.append(f"{_capital(mode)}, with memory as glibc handles it by default:")
        parts.append(_by_size(result, group="default", mode=mode))
    return parts


def _capital(mode: str) -> str:
    return mode[0].upper() + mode[1:]  # XLA stays XLA


def _seen(result: Result, name: str, **what: str) -> list[str]:
    return list(dict.fromkeys(str(row.what[name]) for row in result.find(**what)))


def _by_size(result: Result, **what: str) -> str:
    rows = result.find(**what)
    sizes = sorted({int(row.what["size"]) for row in rows})
    header = ["candidate"]
    for size in sizes:
        header += [f"{' × '.join(map(str, layers.shape(size)))}: ns", "ratio"]
    lines = []
    for name in dict.fromkeys(str(row.what["candidate"]) for row in rows):
        line = [name]
        for size in sizes:
            row = result.one(**what, candidate=name, size=size)
            line += ["" if row is None else number(row.values["ns"]), ratio(row)]
        lines.append(line)
    return table(header, lines)


def _dtypes(result: Result) -> str:
    rows: list[Row] = result.find(group="dtypes", candidate=layers.QSD)
    header = ["", *(" × ".join(map(str, layers.shape(size))) for size in layers.DTYPE_SIZES)]
    lines = []
    for mode, dtype in dict.fromkeys((row.what["mode"], row.what["dtype"]) for row in rows):
        found = (
            result.one(group="dtypes", candidate=layers.QSD, mode=mode, dtype=dtype, size=size)
            for size in layers.DTYPE_SIZES
        )
        lines.append([f"{dtype}, {mode}", *map(ratio, found)])
    return table(header, lines)
