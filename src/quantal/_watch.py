"""Proof by running: the masks that a program draws without QSD, and the lines that led there.

Whatever the source looks like, a mask is either drawn directly, or is a comparison of random
numbers or their floor. The ``_watch`` of each framework says which of its operations these are.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import sys
import sysconfig
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

__all__ = ["NativeMask", "StackFrame", "in_package"]
__all__ += ["looks_random", "of_its_own", "short", "stack_frames"]


_RANDOM_NAME = re.compile(r"(^|_)(rng|rand|random|uniform|bernoulli|binomial)")


class StackFrame(NamedTuple):
    """A line that is being run, in a function named as ``Class.method``."""

    file: str
    line: int
    function: str


class NativeMask(NamedTuple):
    """A mask that was drawn, and the lines that led there, the innermost first.

    Its rate is NaN if it is unknown.
    """

    rate: float
    frames: tuple[StackFrame, ...]


def of_its_own(frame: StackFrame | None) -> str:
    """Return the sentence that says that something draws a mask of its own, and where."""
    where = f" in {frame.function}, {Path(frame.file).name}:{frame.line}" if frame else ""
    return f"it draws a mask of its own{where}"


def short(rate: float) -> float:
    """Return a rate without digits that come from rounding."""
    # The rate may be a float32, or 1 minus the probability to keep a unit.
    return float(f"{rate:.6g}") if math.isfinite(rate) else math.nan


def stack_frames() -> tuple[StackFrame, ...]:
    """Return the lines that are being run, the innermost first."""
    frame, found = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        found.append(StackFrame(code.co_filename, frame.f_lineno, code.co_qualname))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def looks_random(function: Any) -> bool:
    """Return whether Python code, which cannot be watched, mentions what draws random numbers.

    Examples
    --------
    >>> import numpy as np
    >>> looks_random(lambda x: x * (np.random.rand(3) < 0.5)), looks_random(np.sinh)
    (True, False)
    """
    waiting, seen = [function], set[int]()
    while waiting:
        each = waiting.pop()
        each = inspect.unwrap(each.func if isinstance(each, functools.partial) else each)
        if _RANDOM_NAME.search(getattr(each, "__name__", "")):
            return True
        if not isinstance(each, FunctionType | MethodType):
            each = getattr(type(each), "__call__", None)  # noqa: B004 - not whether there is one
        code = getattr(each, "__code__", None)
        if not isinstance(code, CodeType) or id(code) in seen:
            continue
        seen.add(id(code))
        names = _names_in(code)
        if any(map(_RANDOM_NAME.search, names)):
            return True
        known = {**each.__globals__, **inspect.getclosurevars(each).nonlocals}
        waiting += [known[name] for name in names if isinstance(known.get(name), FunctionType)]
    return False


def _names_in(code: CodeType) -> set[str]:
    inner = (_names_in(const) for const in code.co_consts if isinstance(const, CodeType))
    return {*code.co_names, *code.co_freevars}.union(*inner)


def in_package(frame: StackFrame, *packages: str) -> bool:
    """Return whether a line stands in one of these packages, or in Python's own library."""
    standard = sysconfig.get_path("stdlib")
    if frame.file.startswith((standard, "<frozen")) and "site-packages" not in frame.file:
        return True
    files = (getattr(sys.modules.get(name), "__file__", None) for name in packages)
    return any(frame.file.startswith(f"{Path(file).parent}/") for file in files if file)
