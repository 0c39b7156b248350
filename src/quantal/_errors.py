"""The words of every error message: the argument, what was expected, what was received."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["FLOATING", "require", "wrong_type", "wrong_value"]

FLOATING = "a floating-point array"


def wrong_type(name: str, expected: str, received: Any) -> TypeError:
    """Return the error for an argument of the wrong type; ``received`` may be a description."""
    return TypeError(_message(name, expected, received))


def wrong_value(name: str, expected: str, received: Any) -> ValueError:
    """Return the error for an argument out of range."""
    return ValueError(_message(name, expected, received))


def _message(name: str, expected: str, received: Any) -> str:
    return f"{name}: expected {expected}. Received: {name}={received!r}"


def require(package: str, extra: str) -> None:
    """Fail with the line to type if a framework is missing.

    Examples
    --------
    >>> require("no_such_framework", "torch")
    Traceback (most recent call last):
    ImportError: no_such_framework is not installed. Type: pip install 'quantal[torch]'
    """
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # it is there, but broken: its own message says more
            raise
        raise ImportError(
            f"{package} is not installed. Type: pip install 'quantal[{extra}]'"
        ) from error
