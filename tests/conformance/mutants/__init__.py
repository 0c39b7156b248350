"""Wrong implementations, each a mistake that someone could make, with the check that names it."""

import importlib
from pathlib import Path

from mutants.register import MUTANTS

__all__ = ["MUTANTS"]

for file in sorted(Path(__file__).parent.glob("[!_]*.py")):  # each adds its own
    importlib.import_module(f"mutants.{file.stem}")
