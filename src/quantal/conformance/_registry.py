"""What a check is, what it is given, and the list of all checks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from quantal.conformance._bounds import Test
from quantal.conformance._finding import Finding
from quantal.conformance._subject import Subject

__all__ = ["CHECKS", "Check", "Trial", "exact", "statistical"]


@dataclass(frozen=True)
class Trial:
    """A subject, and the share of the budget that one question may spend."""

    subject: Subject
    significance: float

    @property
    def quick(self) -> bool:
        """Whether few shapes and dtypes must do."""
        return self.subject.quick

    def judge(self, what: str, test: Test, seen: float, samples: int, *, stated: float) -> Finding:
        """Answer a question by a test.

        ``seen`` is a count, a distance or a mean, and ``stated`` the fault that the number of
        samples was computed for.
        """
        if samples == 0 or not math.isfinite(seen):
            return Finding(what, False, samples=samples, detail="no finite units to judge by")
        p_value, seen_as = test.p_value(seen, samples), test.estimate(seen, samples)
        passed = p_value > self.significance
        detail = "" if passed else f"expected {test.expected:.6g}, saw {seen_as:.6g}"
        return Finding(
            what,
            passed,
            seen_as,
            test.expected,
            p_value,
            self.significance,
            samples,
            test.detectable(samples, self.significance),
            stated,
            detail,
        )

    @staticmethod
    def require(what: str, holds: bool, detail: str, samples: int = 1) -> Finding:
        """Answer a question that chance plays no part in."""
        return Finding(what, bool(holds), samples=samples, detail="" if holds else detail)


Answer = Callable[[Trial], Iterator[Finding]]
Parts = int | Callable[[bool], int]


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
    parts : int or function of whether a run is quick
        How many of its questions chance plays a part in, at most: the budget is divided by the
        number of all such questions. 0 for a check that spends nothing.
    needs : str
        What the adapter must have: "calls", "grad", "half precision", "single precision", or "".
    """

    name: str
    asks: str
    fault: str
    parts: Parts
    needs: str
    answer: Answer

    def questions(self, quick: bool) -> int:
        """Return how many of its questions chance plays a part in."""
        return self.parts if isinstance(self.parts, int) else self.parts(quick)


CHECKS: dict[str, Check] = {}
"""All checks by name, in the order in which they run."""


def statistical(
    name: str, *, fault: str, parts: Parts, needs: str = ""
) -> Callable[[Answer], Answer]:
    """Add a check that draws on the budget; its docstring's first line says what must hold."""

    def add(answer: Answer) -> Answer:
        asks = (answer.__doc__ or "").partition("\n")[0].removesuffix(".")
        CHECKS[name] = Check(name, asks, fault, parts, needs, answer)
        return answer

    return add


def exact(
    name: str, *, fault: str = "any difference", needs: str = ""
) -> Callable[[Answer], Answer]:
    """Add a check that chance plays no part in."""
    return statistical(name, fault=fault, parts=0, needs=needs)
