"""The answer to one question."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Finding"]


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
    p_value, significance : float or None
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
    significance: float | None = None
    samples: int = 0
    fault: float | None = None
    stated: float | None = None
    detail: str = ""

    @property
    def margin(self) -> float:
        """How far from failing: the smaller, the worse."""
        if not self.passed:
            return -1.0
        if self.p_value is None or not self.significance:
            return 1.0
        return self.p_value / self.significance
