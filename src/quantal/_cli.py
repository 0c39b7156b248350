"""The command ``quantal``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from quantal import __version__
from quantal._describe import describe, plot
from quantal.conformance import _cli as conform
from quantal.dilution import Dilution

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 for arguments that make no sense."""
    parser = argparse.ArgumentParser(prog="quantal", description=__doc__)
    parser.add_argument("--version", action="version", version=f"quantal {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    add_describe(commands)
    conform.add_parser(commands)
    given = parser.parse_args(arguments)
    return int(given.run(given))


def add_describe(commands: Any) -> None:
    """Add ``quantal describe`` to what `argparse` returns for subcommands."""
    parser = commands.add_parser("describe", help="show the law of a dilution as numbers")
    parser.add_argument("--rate", type=float, required=True, help="drop rate, in [0, 1]")
    parser.add_argument("--alpha", type=float, help="homogeneity, above 0, or inf")
    parser.add_argument("--vary", default="pq", help="pq (QSD), p or q")
    parser.add_argument("--unit-mean", action="store_true", help="divide by the mean")
    parser.add_argument("--plot", metavar="FILE", help="draw p, q and c to a picture")
    parser.set_defaults(run=_describe)


def _describe(given: argparse.Namespace) -> int:
    try:
        law = Dilution(given.rate, given.alpha, vary=given.vary, unit_mean=given.unit_mean)
        print(describe(law))
        if given.plot:
            print(f"\nwritten: {plot(law, given.plot)}")
    except (TypeError, ValueError, ImportError, OSError) as error:
        print(f"quantal describe: {error}", file=sys.stderr)
        return 2
    return 0
