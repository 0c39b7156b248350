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
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

__all__ = ["MaskFinder", "NativeMask", "StackFrame", "in_package"]
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


class MaskFinder:
    """Find the masks among the operations of a program, which `see` is told one by one.

    Parameters
    ----------
    random : iterable of str
        Operations that draw what masks can be made of.
    passed_on : iterable of str
        Operations that leave random numbers random.
    masks : mapping from str to function
        Operations that draw or make masks, each with a function from its inputs to the rate, or to
        None if this is not a mask.
    drawn : iterable of str
        Those of them that draw the random numbers themselves.
    plain : function
        Whether an input that is not random is not data either; noise on data is not a mask.

    Examples
    --------
    >>> finder = MaskFinder(["uniform"], ["cast"], {"less": lambda inputs: 1 - inputs[1]})
    >>> numbers, same, mask = [0.3], [0.3], [True]
    >>> finder.see("uniform", [], [numbers])
    >>> finder.see("cast", [numbers], [same])
    >>> finder.see("less", [same, 0.75], [mask])
    >>> [found.rate for found in finder.found]
    [0.25]
    """

    def __init__(
        self,
        random: Iterable[str],
        passed_on: Iterable[str],
        masks: dict[str, Callable[[Any], float | None]],
        drawn: Iterable[str] = (),
        plain: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        self._random, self._passed_on = frozenset(random), frozenset(passed_on)
        self._masks, self._drawn, self._plain = masks, frozenset(drawn), plain
        self._tensors: dict[int, Any] = {}  # the random ones by identity, and kept alive for that
        self.found: list[NativeMask] = []

    def see(self, kind: str, inputs: Iterable[Any], outputs: Iterable[Any]) -> None:
        """Take note of an operation."""
        inputs = list(inputs)
        random = [id(each) in self._tensors for each in inputs]
        follows = any(random) and all(
            known or self._plain(each) for known, each in zip(random, inputs, strict=True)
        )
        makes_mask = kind in self._masks and (follows or kind in self._drawn)
        if makes_mask and (rate := self._masks[kind](inputs)) is not None:
            self.found.append(NativeMask(short(rate), stack_frames()))
        elif kind in self._random or (follows and kind in self._passed_on):
            self._tensors.update({id(each): each for each in outputs})


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
