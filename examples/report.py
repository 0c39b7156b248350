"""A report on a folder of runs: tables beside the paper's numbers, and the paper's figures."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from examples import figures, tables, words
from examples.comparison import conditions
from examples.experiments import EXPERIMENTS, experiment
from examples.markdown import cell, table
from examples.page import page
from examples.records import Records, collect
from examples.sparse import TOTALS, VIEWS
from quantal._errors import wrong_value

__all__ = ["compare", "report", "write_page"]

Rows = Sequence[tables.Row]

_NOTES = """\
A run's score is the mean of its last 3 evaluations. Z and P are those of the unpaired Wilcoxon \
rank-sum test against dropout at the same rate; Z is positive where the condition is the lower, \
that is the better one. *Z of QSD* and *P of QSD* are those of QSD at the same rate and α against \
the condition; they are positive where QSD is the lower. A run that diverged ranks behind all \
others, in Z and in the quartiles."""
_SPARSE_NOTES = """\
Outputs of the sites, relative to dropout at the same rate: medians over the runs that did not \
diverge. B: test data, masks on; C: masks off; D: inputs permuted, masks off. Size is the mean of \
the absolute value. What was trained at other rates than the paper's is in `sparse.csv`."""


def report(runs: Path, out: Path) -> Path:
    """Write ``report.md``, ``results.csv``, ``sparse.csv`` and the figures; return the first.

    Parameters
    ----------
    runs : path
        A folder with runs in it, or that of a single run.
    out : path
        The folder to write to.
    """
    records = collect(runs)
    if not records and not records.damaged:
        raise wrong_value("runs", "a folder with runs in it", str(runs))
    out.mkdir(parents=True, exist_ok=True)
    found = conditions(records)
    results, sparse = list(tables.results(found)), list(tables.sparse(found))
    _write_csv(out / "results.csv", results)
    _write_csv(out / "sparse.csv", sparse)
    written, left_out = figures.draw(records, out / "figures")
    pictures = [path.relative_to(out).as_posix() for path in written if path.suffix == ".png"]
    parts = [
        "# Report",
        *_summary(records),
        *_results(results),
        *_sparse([row for row in sparse if _is_compared(row)]),
        "## Figures",
        *(f"![{Path(picture).stem}]({picture})" for picture in pictures),
        *(f"Left out: {name}, {reason}." for name, reason in left_out.items()),
    ]
    path = out / "report.md"
    path.write_text("\n\n".join(parts) + "\n")
    return path


def write_page(runs: Path, path: Path) -> Path:
    """Write the page of results, and its figures to ``figures`` in the folder of its name."""
    records = collect(runs)
    if records.damaged:  # a page that is to be trusted is made of nothing else
        raise ValueError(next(iter(records.damaged.values())))
    if not records:
        raise wrong_value("runs", "a folder with runs in it", str(runs))
    folder = path.with_suffix("") / "figures"
    named = figures.of_experiments(records)
    figures.draw(records, folder, only={name for names in named.values() for name in names})
    place = folder.relative_to(path.parent)
    pictures = {own: [place / f"{name}.png" for name in names] for own, names in named.items()}
    path.write_text(page(records, runs, path, pictures))
    return path


def compare(runs: Path) -> str:
    """Return the results of a folder of runs as lines for a terminal."""
    lines = []
    for row in tables.results(conditions(collect(runs))):
        cells = _result(row)
        line = "{condition:<14} {median:>9} ({quartiles}), n = {n}".format(**cells)
        measure = words.measure(row["measure"], rmse=experiment(row["experiment"]).error == "rmse")
        test = "" if row["z"] is None else f"; against dropout Z = {cells['Z']}, P = {cells['P']}"
        lines.append(f"{row['experiment']:<12} {row['backend']:<5} {measure:<16} {line}{test}")
    return "\n".join(lines)


def _summary(records: Records) -> Iterator[str]:
    unfinished = [run for run in records if run.score is None]
    diverged = [run for run in records if run.diverged]
    there = {run.settings.experiment for run in records}
    yield (
        f"{len(records)} runs: {len(records) - len(unfinished)} finished, {len(diverged)} of them "
        f"diverged; {len(unfinished)} not finished and not counted; {len(records.damaged)} damaged "
        f"and left out. {_NOTES}"
    )
    lines = [f"- damaged: `{folder}`: {why}" for folder, why in records.damaged.items()]
    lines += [
        f"- not finished: `{run.settings.name}`, {len(run.metrics)} of {run.settings.epochs} epochs"
        for run in unfinished
    ]
    lines += [f"- diverged: `{run.settings.name}`" for run in diverged]
    lines += [f"- missing: {name}, no runs" for name in EXPERIMENTS if name not in there]
    yield "\n".join(lines)


def _results(rows: Rows) -> Iterator[str]:
    for (name, measure), group in groupby(rows, lambda row: (row["experiment"], row["measure"])):
        own = list(group)
        plan = experiment(name)
        yield f"## {plan.title}: {words.measure(measure, rmse=plan.error == 'rmse')}"
        yield table([_result(row) for row in own])
        if len({row["backend"] for row in own}) > 1:
            yield table(_across(own))


def _result(row: tables.Row) -> dict[str, str]:
    quartiles = [words.number(row[end]) for end in ("lower_quartile", "upper_quartile")]
    return {
        "backend": row["backend"],
        "condition": row["condition"],
        "rate": cell(row["rate"], "g"),
        "n": str(row["n"]),
        "diverged": str(row["diverged"]),
        "median": _median(row),
        "quartiles": " to ".join(quartiles) if row["n"] else "–",
        "paper's median": _papers_median(row),
        "Z": cell(row["z"], ".2f"),
        "P": cell(row["p"], ".2g"),
        "paper's Z": cell(row["paper_z"], ".2f"),
        "matched seeds": cell(row["matched"], "d"),
        "Z of QSD": cell(row["z_of_qsd"], ".2f"),
        "P of QSD": cell(row["p_of_qsd"], ".2g"),
        "paper's Z of QSD": cell(row["paper_z_of_qsd"], ""),
        "unlike the paper": row["setup"],
    }


def _papers_median(row: tables.Row) -> str:
    above = row["paper_above"]
    return cell(row["paper"], "g") if above is None else f"> {above:g}"


def _across(rows: Rows) -> Iterator[dict[str, str]]:
    """Yield the medians of the backends side by side, where there is something to compare."""
    there = list(dict.fromkeys(row["backend"] for row in rows))
    lines: dict[tuple[str, ...], dict[str, tables.Row]] = {}
    for row in (row for row in rows if row["n"]):
        key = (row["condition"], cell(row["rate"], "g"), row["setup"])
        lines.setdefault(key, {})[row["backend"]] = row
    for (condition, rate, setup), own in lines.items():
        medians = {name: _median(own[name]) if name in own else "missing" for name in there}
        line = {"median of": condition, "rate": rate, **medians}
        paper = next(iter(own.values()))["paper"]
        if len(own) > 1 or paper is not None:
            yield line | {"paper": cell(paper, "g"), "unlike the paper": setup}


def _median(row: tables.Row) -> str:
    return words.number(row["median"]) if row["n"] else "missing"


def _sparse(rows: Rows) -> Iterator[str]:
    if rows:
        yield "## Sparse encoding"
        yield _SPARSE_NOTES
    who = ("backend", "condition", "rate", "n", "site", "setup")
    for name, group in groupby(rows, lambda row: row["experiment"]):
        yield f"### {experiment(name).title}"
        lines = []
        for key, views in groupby(group, lambda row: [row[part] for part in who]):
            lines.append(_changes(dict(zip(who, key, strict=True)), list(views)))
        yield table(lines)


def _is_compared(row: tables.Row) -> bool:
    return row["absolute_change"] is not None and row["rate"] == experiment(row["experiment"]).rate


def _changes(who: dict[str, Any], rows: Rows) -> dict[str, str]:
    line = {name: f"{value:g}" if name == "rate" else str(value) for name, value in who.items()}
    unlike = line.pop("setup")
    letters = {view: title[0] for view, title in VIEWS.items()}
    paper = []
    for total in TOTALS:
        title = "size" if total == "absolute" else total
        for row in rows:
            line[f"{title} {letters[row['view']]}"] = cell(row[f"{total}_change"], "+z.0%")
            if (found := row[f"paper_{total}_change"]) is not None:
                paper.append(f"{title} {letters[row['view']]} {found:+.0%}")
    return line | {"paper": ", ".join(paper) or "–", "unlike the paper": unlike}


def _write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0] if rows else ())
        writer.writeheader()
        writer.writerows(rows)
