"""The tables of training steps, memory, fixed costs, the law, and where the time goes."""

from __future__ import annotations

from benchmarks import layers
from benchmarks.law import ALPHAS, RATES, SAMPLERS
from benchmarks.report import notes
from benchmarks.report.markdown import number, ratio, table, time
from benchmarks.store import Result

__all__ = ["breakdown", "fixed", "law", "memory", "schedule", "training"]


def training(result: Result) -> list[str]:
    """Return the cost of a step for each model."""
    lines = []
    for row in result.find(candidate="qsd"):
        framework, experiment = row.what["framework"], row.what["experiment"]
        own, none = (
            result.one(framework=framework, experiment=experiment, candidate=name)
            for name in ("dropout", "none")
        )
        assert own is not None
        step = own.values["ns"] * 1e-9 * row.what["size"]
        name = notes.NAMES[framework]
        lines.append([experiment, name, str(row.what["size"]), time(step), ratio(none), ratio(row)])
    header = ["model", "framework", "batch", "step with dropout", "ratio: no layer", "ratio: QSD"]
    return [notes.TRAINING, table(header, sorted(lines))]


def memory(result: Result) -> list[str]:
    """Return bytes per element."""
    lines = [
        [
            notes.NAMES[row.what["framework"]],
            row.what["mode"],
            row.what["candidate"],
            *(f"{row.values[name]:.1f}" for name in ("kept", "peak")),
        ]
        for row in result.rows
    ]
    return [notes.MEMORY, table(["framework", "mode", "candidate", "kept", "peak"], lines)]


def fixed(result: Result) -> list[str]:
    """Return the costs that do not grow with the data."""
    imports = [
        [
            f"`import {row.what['name']}`",
            f"{row.what['after']} ({time(row.values['base'])})",
            *(time(row.values[k]) if k in row.values else "" for k in ("import", "dropout", "QSD")),
        ]
        for row in result.find(group="fresh")
    ]
    made = [
        [
            f"`quantal.table.{row.what['name']}`",
            time(row.values["seconds"]),
            f"{time(row.values['slowest'])} (rate {row.what['rate']}, α {row.what['alpha']})",
        ]
        for row in result.find(group="table")
    ]
    calls = [[f"`{r.what['name']}`", time(r.values["seconds"])] for r in result.find(group="key")]
    for row in result.find(group="convert"):
        name = f"`quantal.torch.{row.what['name']}`, BERT of 12 layers, {row.what['sites']} sites"
        calls.append([name, time(row.values["seconds"])])
    kit = [
        [
            row.what["name"],
            f"{row.values['passed']:.0f} of {row.values['checks']:.0f}",
            time(row.values["seconds"]),
            time(row.values["cpu"]),
        ]
        for row in result.find(group="conformance")
    ]
    return [
        notes.FRESH,
        table(["import", "after", "time", "first step, own dropout", "first step, QSD"], imports),
        "A table is made once for each law. Over the settings of the paper:",
        table(["", "median", "slowest"], made),
        table(["", "time"], calls),
        "The conformance kit, with one process for each adapter:",
        table(["adapter", "checks passed", "time", "CPU time"], kit),
    ]


def schedule(result: Result) -> list[str]:
    """Return what a new law adds to a step."""
    lines = [
        [
            notes.NAMES[row.what["framework"]],
            str(row.what["rate"]),
            row.what["new"],
            *(time(row.values[name]) for name in ("step", "law")),
        ]
        for row in result.rows
    ]
    return [notes.SCHEDULE, table(["framework", "rate", "new", "step", "a new law adds"], lines)]


def law(result: Result, limit: float) -> list[str]:
    """Return who draws what: distances, then moments, for each rate."""
    parts = []
    seen = dict.fromkeys((row.what["sampler"], row.what["framework"]) for row in result.rows)
    pairs = sorted(seen, key=lambda pair: SAMPLERS.index(pair[0]))
    for rate in RATES:
        header = [f"distance at rate {rate}, α =", *(f"{alpha:g}" for alpha in ALPHAS)]
        moments = [f"relative error of E[c], E[c²] at rate {rate}, α =", *header[1:]]
        far, off = [], []
        for sampler, framework in pairs:
            name = f"{sampler}, {notes.NAMES[framework]}"
            far.append([name])
            off.append([name])
            for alpha in ALPHAS:
                row = result.one(sampler=sampler, framework=framework, rate=rate, alpha=alpha)
                if row is None:
                    far[-1].append("")
                    off[-1].append("")
                    continue
                shown = f"{row.values['distance']:.4f}"
                shown = f"**{shown}**" if row.values["distance"] > limit else shown
                nan = f", {row.values['nan']:.0%} NaN" if row.values["nan"] else ""
                far[-1].append(shown + nan)
                off[-1].append(", ".join(_error(row.values, k) for k in (1, 2)))
        if any(any(line[1:]) for line in far):
            parts += [table(header, far), table(moments, off)]
    return [
        *parts,
        "The error of a moment is bold if it exceeds 5 standard errors. Moments leave out NaN.",
    ]


def _error(values: dict[str, float], k: int) -> str:
    shown = f"{values[f'moment {k}']:+.3f}"
    return f"**{shown}**" if abs(values[f"z {k}"]) > 5 else shown


def breakdown(result: Result) -> list[str]:
    """Return where the time goes."""
    parts = []
    for size in dict.fromkeys(row.what["size"] for row in result.rows):
        shape = " × ".join(map(str, layers.shape(size)))
        parts.append(
            f"PyTorch, eager, {shape}: operations of more than 3% of a step, by its profiler."
        )
        operations = [
            [
                row.what["candidate"],
                f"`{row.what['operation']}`",
                number(row.values["us"]),
                f"{row.values['share']:.0%}",
                f"{row.values['calls']:.0f}",
            ]
            for row in result.find(group="operations", size=size)
        ]
        parts.append(table(["candidate", "operation", "µs", "share", "calls"], operations))
        for framework in ("jax", "keras-tensorflow"):
            parts.append(f"{notes.NAMES[framework]}, compiled, {shape}:")
            programs = [
                [row.what["candidate"], number(row.values["ns"] * size / 1e3), ratio(row)]
                for row in result.find(group="parts", framework=framework, size=size)
            ]
            parts.append(table(["program", "µs", "ratio to QSD"], programs))
    return parts
