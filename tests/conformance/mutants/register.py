"""The list of wrong implementations, each with the check that names its fault."""

from __future__ import annotations

from collections.abc import Callable

from recipe import Recipe

MUTANTS: dict[type[Recipe], str] = {}


def caught_by(check: str) -> Callable[[type[Recipe]], type[Recipe]]:
    def add(mutant: type[Recipe]) -> type[Recipe]:
        MUTANTS[mutant] = check
        return mutant

    return add
