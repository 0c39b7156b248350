"""Submodules that load when they are first used, as ``quantal.torch`` does."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

from quantal._errors import is_installed

__all__ = ["submodules"]


def submodules(
    package: str, needs: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and ``__dir__`` of a package with submodules to be loaded lazily.

    Parameters
    ----------
    package : str
        The package's ``__name__``.
    needs : mapping
        The framework that each submodule needs; empty if it needs none.

    Examples
    --------
    >>> import quantal
    >>> quantal.sites.Site("drop", "Dropout", 0.5).rate
    0.5
    >>> quantal.no_such_module
    Traceback (most recent call last):
    AttributeError: module 'quantal' has no attribute 'no_such_module'
    """

    def load(name: str) -> Any:
        if name in needs:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def listed() -> list[str]:
        # Not those whose framework is missing: to get them would raise.
        there = {
            name for name, framework in needs.items() if not framework or is_installed(framework)
        }
        return sorted({*vars(sys.modules[package]), *there})

    return load, listed
