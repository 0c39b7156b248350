"""What a check is, what it finds, and the list of all checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quantal.conformance.bounds import Test
from quantal.conformance.subject import Subject

__all__ = ["CHECKS", "Check", "Finding", "Trial", "exact", "statistical"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question of a check.

    Attributes
    ----------
    what : str
        The question.
    passed : bool
        Whether the implementation passed.
    seen, expected : float or None
        What was measured, and what the law says; None where the answer is not a number.
    p_value, level : float or None
        The bound on the probability of such a result from a right implementation, and the share
        of the budget that it must not fall below; None where chance plays no part.
    samples : int
        How many draws, or calls, went into it.
    fault, stated : float or None
        The smallest fault that so many draws reveal, in the units of ``seen``, and the one that
        was promised: never smaller.
    detail : str
        What went wrong, if anything.
    """

    what: str
    passed: bool
    seen: float | None = None
    expected: float | None = None
    p_value: float | None = None
    level: float | None = None
    samples: int = 0
    fault: float | None = None
    stated: float | None = None
    detail: str = ""

    @property
    def margin(self) -> float:
        """How far from failing: the smaller, the worse."""
        if not self.passed:
            return -1.0
        return 1.0 if self.p_value is None or not self.level else self.p_value / self.level


@dataclass(frozen=True)
class Trial:
    """A subject, and the share of the budget that one question of one check may spend."""

    subject: Subject
    level: float

    def judge(self, what: str, test: Test, seen: float, samples: int, *, stated: float) -> Finding:
        """Answer a question by a test.

        ``seen`` is a count, a distance or a mean, and ``stated`` the fault that the number of
        samples was computed for.
        """
        if samples == 0 or not math.isfinite(seen):
            return Finding(what, False, seen, samples=samples, detail="no finite units to judge by")
        p_value, seen_as = test.p_value(seen, samples), test.estimate(seen, samples)
        fault = test.detectable(samples, self.level)
        passed = p_value > self.level
        detail = "" if passed else f"expected {test.expected:.6g}, saw {seen_as:.6g}"
        return Finding(
            what,
            passed,
            seen_as,
            test.expected,
            p_value,
            self.level,
            samples,
            fault,
            stated,
            detail,
        )

    @staticmethod
    def require(what: str, holds: bool, detail: str = "", samples: int = 1) -> Finding:
        """Answer a question that chance plays no part in."""
        return Finding(what, bool(holds), samples=samples, detail="" if holds else detail)


@dataclass(frozen=True)
class Check:
    """One check of the kit.

    Attributes
    ----------
    name : str
        The fault's name, in a word or two.
    asks : str
        What must hold, in one line.
    fault : str
        The smallest fault that it catches.
    parts : int
        How many of its questions chance plays a part in: its share of the budget is divided by
        them. 0 for a check that spends nothing.
    needs_calls : bool
        Whether it needs an adapter with ``calls``.
    """

    name: str
    asks: str
    fault: str
    parts: int
    needs_calls: bool
    answer: Callable[[Trial], Iterator[Finding]]


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they run."""

_Answer = Callable[[Trial], Iterator[Finding]]


def statistical(
    name: str, *, fault: str, parts: int, needs_calls: bool = False
) -> Callable[[_Answer], _Answer]:
    """Add a check that draws on the budget; its docstring's first line says what must hold."""

    def add(answer: _Answer) -> _Answer:
        asks = (answer.__doc__ or "").partition("\n")[0].removesuffix(".")
        CHECKS[name] = Check(name, asks, fault, parts, needs_calls, answer)
        return answer

    return add


def exact(
    name: str, *, fault: str = "any difference", needs_calls: bool = False
) -> Callable[[_Answer], _Answer]:
    """Add a check that chance plays no part in."""
    return statistical(name, fault=fault, parts=0, needs_calls=needs_calls)
