"""``quantal conform``: the kit on the command line."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quantal.conformance._report import Report

__all__ = ["add_parser", "main", "run_command"]

_FORMATS: dict[str, Callable[[Report], str]] = {
    "text": lambda report: report.to_text(),
    "markdown": lambda report: report.to_markdown(),
    "json": lambda report: report.to_json(),
}
_SUFFIXES = {".txt": "text", ".md": "markdown", ".json": "json"}


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add ``conform`` to the parsers of ``quantal``."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "conform",
        help="judge implementations of QSD",
        description="Judge implementations of QSD. Exit code 0 if all pass, 1 if one fails.",
    )
    _add_arguments(parser)
    parser.set_defaults(run=run_command)
    return parser


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "adapters",
        nargs="*",
        metavar="adapter",
        help="a built-in adapter (see --list) or package.module:name",
    )
    parser.add_argument("--budget", type=float, default=1e-6, help="false-alarm budget of a run")
    parser.add_argument("--seed", type=int, default=0, help="seed of a run")
    parser.add_argument("--only", action="append", metavar="CHECK", help="this check alone")
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument(
        "--quick",
        action="store_const",
        const=True,
        help="few shapes and dtypes: the default where a framework compiles each of them",
    )
    effort.add_argument(
        "--full",
        dest="quick",
        action="store_const",
        const=False,
        help="all shapes and dtypes: the default elsewhere",
    )
    parser.add_argument(
        "--fail-fast", action="store_true", help="end each check at its first failure"
    )
    parser.add_argument("--format", choices=_FORMATS, default="text", help="of what is printed")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="also write a .txt, .md or .json file"
    )
    parser.add_argument("--installed", action="store_true", help="all built-in adapters there are")
    parser.add_argument("--jobs", type=int, default=1, help="how many adapters to judge at once")
    parser.add_argument(
        "--device",
        help="judge an adapter of torch on this device (cuda, say), compare its bits with those"
        " of a CPU, and its speed with dropout's",
    )
    parser.add_argument("--list", action="store_true", help="list adapters and checks")


def run_command(args: argparse.Namespace) -> int:
    """Run ``quantal conform`` and return its exit code."""
    from quantal.conformance.adapters import installed

    if args.list:
        print(_listing())
        return 0
    specs = list(dict.fromkeys([*args.adapters, *(installed() if args.installed else ())]))
    try:
        if not specs:
            raise ValueError("no adapter was named; --list lists those built in")
        if args.jobs < 1:
            raise ValueError(f"--jobs: expected 1 or more: {args.jobs}")
        if args.report is not None and args.report.suffix not in _SUFFIXES:
            raise ValueError(f"--report: expected {', '.join(_SUFFIXES)}: {args.report}")
        if args.report is not None and (args.report.is_dir() or not args.report.parent.is_dir()):
            raise ValueError(f"--report: expected a file in a folder that is there: {args.report}")
        reports = []
        for report in _reports(specs, args):
            reports.append(report)
            if args.format != "json":
                print(_FORMATS[args.format](report), end="\n\n", flush=True)
        same = args.device is None or _same_on(args.device, quiet=args.format == "json")
    except (ValueError, TypeError, ImportError, AttributeError) as error:
        print(f"quantal conform: {error}", file=sys.stderr)
        return 2
    if args.format == "json":
        print(_joined(reports, "json"))
    elif len(reports) > 1:
        print("\n".join(report.verdict() for report in reports))
    if args.report is not None:
        args.report.write_text(_joined(reports, _SUFFIXES[args.report.suffix]), encoding="utf-8")
    return 0 if same and all(report.passed for report in reports) else 1


def _joined(reports: list[Report], form: str) -> str:
    parts = [_FORMATS[form](report) for report in reports]
    return f"[{','.join(parts)}]\n" if form == "json" else "\n".join(parts) + "\n"


def _listing() -> str:
    from quantal.conformance._registry import CHECKS
    from quantal.conformance._runner import names
    from quantal.conformance.adapters import BUILT_IN, installed

    there = (*installed(), "keras")  # which is one of the three after it, by KERAS_BACKEND
    lines = ["adapters"]
    lines += [f"  {name}{'' if name in there else ' (not installed)'}" for name in BUILT_IN]
    lines += ["", "checks"]
    return "\n".join([*lines, *(f"  {n:<22} {CHECKS[n].asks}" for n in names())])


def _reports(specs: list[str], args: argparse.Namespace) -> Iterator[Report]:
    """Judge the adapters; several of them in a process each, as Keras has one backend in each."""
    if len(specs) == 1:
        yield _here(specs[0], args)
        return
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(args.jobs) as pool:
        # The libraries on JAX compile the same functions: the first does it for all.
        environment = {
            "JAX_COMPILATION_CACHE_DIR": cache,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            **os.environ,
        }
        yield from pool.map(lambda spec: _apart(spec, args, environment), specs)


def _here(spec: str, args: argparse.Namespace) -> Report:
    """Judge an adapter in this process."""
    from quantal.conformance._runner import run
    from quantal.conformance.adapters import load

    _look_here_last(for_adapters=":" in spec)
    adapter: Any = load(spec)
    if args.device is not None:
        if not hasattr(adapter, "on"):
            raise ValueError(f"--device: expected an adapter of torch: {spec}")
        adapter, spec = adapter.on(args.device), f"{spec} --device {args.device}"
    return run(
        adapter,
        budget=args.budget,
        seed=args.seed,
        only=args.only,
        quick=args.quick,
        fail_fast=args.fail_fast,
        progress=_progress(spec),
        spec=spec,
    )


def _look_here_last(*, for_adapters: bool) -> None:
    """Find ``package.module:name`` in the current folder, but nothing else.

    ``python -m`` puts that folder first, where a file of it called torch.py would take torch's
    place.
    """
    here = os.getcwd()
    sys.path[:] = [path for path in sys.path if path not in ("", here)]
    if for_adapters:
        sys.path.append(here)


def _apart(spec: str, args: argparse.Namespace, environment: dict[str, str]) -> Report:
    """Judge an adapter in a process of its own."""
    from quantal.conformance._report import Report

    command = [sys.executable, "-P", "-m", "quantal.conformance", spec, "--format", "json"]
    command += ["--budget", repr(args.budget), "--seed", str(args.seed)]
    command += [word for name in args.only or () for word in ("--only", name)]
    command += ["--quick" if args.quick else "--full"] if args.quick is not None else []
    command += ["--fail-fast"] if args.fail_fast else []
    command += ["--device", args.device] if args.device is not None else []
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=False
    )
    if done.returncode not in (0, 1):
        raise ValueError(f"{spec} could not be run")
    (report,) = Report.list_from_json(done.stdout)
    return report


def _same_on(device: str, *, quiet: bool) -> bool:
    """Return whether keys draw on a device of torch what they draw on a CPU; tell its speed too."""
    from quantal.conformance._on_device import differences, ratios

    different = differences(device)
    if not quiet:
        same = f"keys: {device} draws what a CPU draws, bit for bit"
        print("\n".join(different) or same, end="\n\n", flush=True)
        for line in ratios(device):
            print(line, flush=True)
    return not different


def _progress(spec: str) -> Callable[[int, int, str], None]:
    """Return a function that shows how far a run is, on one line of a terminal."""

    def show(number: int, count: int, name: str) -> None:
        if sys.stderr.isatty():
            line = f"{spec}: {number}/{count} {name}"
            print(f"\r{line:<60}", end="\r" if number == count else "", file=sys.stderr, flush=True)
        elif number == 1:
            print(f"{spec}: {count} checks …", file=sys.stderr, flush=True)

    return show


def main(argv: list[str] | None = None) -> int:
    """Run the kit as ``python -m quantal.conformance``."""
    parser = argparse.ArgumentParser(prog="python -m quantal.conformance")
    _add_arguments(parser)
    return run_command(parser.parse_args(argv))
