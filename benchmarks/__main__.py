"""Measure, and make the page of the figures.

    python -m benchmarks run [suite …] [--quick] [--out FOLDER] [--threads N] [--device gpu]
    python -m benchmarks page [--from FOLDER]
    python -m benchmarks readme [--write]

Alone on the machine: where threads wait for a core, what runs in parallel suffers most.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from benchmarks.harness import Task
from benchmarks.runner import ROOT, SUITES, measure, run

FOLDERS = {"cpu": ROOT / "docs" / "benchmarks", "gpu": ROOT / "docs" / "benchmarks-gpu"}


def main(arguments: list[str] | None = None) -> None:
    """Obey the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)

    cores = min(2, len(os.sched_getaffinity(0)))  # the bars are for two
    one = commands.add_parser("run", help="run suites, by default all, and write JSON")
    one.add_argument("suites", nargs="*", metavar="suite", help=", ".join(SUITES))
    one.add_argument("--quick", action="store_true", help="few rounds and sizes, for tests")
    one.add_argument("--out", type=Path, help="by default docs/benchmarks or docs/benchmarks-gpu")
    one.add_argument("--threads", type=int, default=cores)
    one.add_argument("--device", choices=("cpu", "gpu"), default="cpu")

    for name, text in (
        ("page", "make docs/benchmarks.md and its plots from the JSON"),
        ("readme", "print the README's table of costs"),
    ):
        one = commands.add_parser(name, help=text)
        one.add_argument("--from", type=Path, default=FOLDERS["cpu"], dest="folder")
    one.add_argument("--write", action="store_true", help="put it between the README's markers")

    one = commands.add_parser("measure")  # one process of a run
    one.add_argument("suite")
    one.add_argument("--task", type=json.loads)
    one.add_argument("--threads", type=int)
    one.add_argument("--to", type=Path)

    given = parser.parse_args(arguments)
    if given.command == "run":
        if wrong := set(given.suites) - set(SUITES):
            parser.error(
                f"no such suite: {', '.join(sorted(wrong))}; there are {', '.join(SUITES)}"
            )
        able = [name for name, suite in SUITES.items() if suite.on_gpu or given.device == "cpu"]
        if wrong := set(given.suites) - set(able):
            parser.error(
                f"--device: expected cpu for {', '.join(sorted(wrong))}. Received: {given.device}"
            )
        out = given.out or FOLDERS[given.device]
        names = given.suites or able
        run(names, out, quick=given.quick, threads=given.threads, device=given.device)
    elif given.command == "measure":
        measure(given.suite, Task(**given.task), given.threads, given.to)
    elif given.command == "page":
        from benchmarks.report.page import write

        write(given.folder)
    else:
        from benchmarks.report import readme

        readme.write(given.folder) if given.write else print(readme.table(given.folder))


if __name__ == "__main__":
    main()
