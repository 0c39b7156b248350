"""The words of every error message: the argument, what was expected, what was received."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ALPHA",
    "FLOATING",
    "install_command",
    "is_installed",
    "require",
    "wrong_type",
    "wrong_value",
]

ALPHA = "a number above 0, or inf for standard dropout"
FLOATING = "a floating-point array"

_LONGEST = 300  # characters of a value in a message


def wrong_type(name: str, expected: str, received: Any) -> TypeError:
    """Return the error for an argument of the wrong type; ``received`` may be a description."""
    return TypeError(_message(name, expected, received))


def wrong_value(name: str, expected: str, received: Any) -> ValueError:
    """Return the error for an argument out of range."""
    return ValueError(_message(name, expected, received))


def _message(name: str, expected: str, received: Any) -> str:
    return f"{name}: expected {expected}. Received: {name}={_shown(received)}"


def _shown(received: Any) -> str:
    """Return a value as text of a length that can be read, whatever it is."""
    try:
        text = repr(received)
    except ValueError:  # Python does not write integers of thousands of digits
        text = "<an integer of thousands of digits>"
    except Exception:  # somebody's own class
        text = f"<{type(received).__name__}>"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def require(
    package: str, extra: str = "", *, command: str = "", others: Mapping[str, str] | None = None
) -> None:
    """Fail with the line to type if a framework is missing.

    Parameters
    ----------
    package : str
        What is imported.
    extra : str
        The extra of this project that installs it.
    command : str
        The command that installs it, where that is not an extra.
    others : mapping, optional
        Packages that this one imports and that may be missing, each with its extra.

    Examples
    --------
    >>> require("no_such_framework", "torch")
    Traceback (most recent call last):
    ImportError: no_such_framework is not installed. Type: pip install 'quantal[torch]'
    """
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        cures = {package: extra, **(others or {})}
        if missing not in cures or is_installed(missing):  # but broken: its own message says more
            raise
        line = command or install_command(cures[missing])
        raise ImportError(f"{missing} is not installed. Type: {line}") from error


def is_installed(package: str) -> bool:
    """Return whether a package could be imported, without doing so.

    Examples
    --------
    >>> is_installed("numpy"), is_installed("no_such_framework")
    (True, False)
    """
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # what sys.modules has as None cannot be imported
        return False


def install_command(extra: str = "") -> str:
    """Return the command that installs this project with an extra.

    Examples
    --------
    >>> install_command("torch"), install_command()
    ("pip install 'quantal[torch]'", 'pip install quantal')
    """
    return f"pip install 'quantal[{extra}]'" if extra else "pip install quantal"
