"""What a run has found, for people and for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from quantal.conformance._finding import Finding

__all__ = ["Report", "Result"]

Status = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True)
class Result:
    """What one check has found.

    Attributes
    ----------
    name, asks, smallest_fault : str
        The check's name, what must hold, and the smallest fault that it catches.
    status : {"passed", "failed", "skipped"}
        The verdict; a check is skipped if the adapter lacks what it needs.
    findings : tuple of Finding
        The answers to its questions.
    significance : float
        Its share of the false-alarm budget; 0 if chance plays no part.
    detail : str
        Why it failed or was skipped.
    seconds : float
        How long it took.
    replay : str
        The command that repeats this check alone, to the same numbers.
    """

    name: str
    asks: str
    smallest_fault: str
    status: Status
    findings: tuple[Finding, ...]
    significance: float
    detail: str
    seconds: float
    replay: str

    @property
    def worst(self) -> Finding | None:
        """The finding that failed, or came closest to it."""
        return min(self.findings, key=lambda finding: finding.margin, default=None)

    @property
    def samples(self) -> int:
        """The number of draws behind its questions (some may share theirs)."""
        return sum(finding.samples for finding in self.findings)

    @property
    def p_value(self) -> float | None:
        """The bound on the probability of its worst finding, times the number of questions."""
        asked = [f for f in self.findings if f.p_value is not None and f.significance]
        if not asked:
            return None
        worst = min((f.p_value or 0.0) / (f.significance or 1.0) for f in asked)
        return min(1.0, worst * self.significance)

    def evidence(self) -> str:
        """Return the worst finding in a few words."""
        finding = self.worst
        if self.detail or finding is None:
            return self.detail
        if finding.p_value is None:
            return f"{len(self.findings)} exact answers"
        return (
            f"{finding.what}: {finding.seen:.5g}, expected {finding.expected:.5g}, "
            f"finds {finding.fault:.2g} by {finding.samples:,} draws"
        )


@dataclass(frozen=True)
class Report:
    """What a run has found.

    Attributes
    ----------
    subject : str
        The adapter's name and version.
    budget : float
        The probability that a right implementation fails the run, at most.
    seed : int
        The seed of the run.
    quick : bool
        Whether it was a quick run, with few shapes and dtypes.
    results : tuple of Result
        One for each check, in the order in which they ran.
    """

    subject: str
    budget: float
    seed: int
    quick: bool
    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failures

    @property
    def failures(self) -> tuple[str, ...]:
        """The names of the checks that failed."""
        return self._names("failed")

    @property
    def skipped(self) -> tuple[str, ...]:
        """The names of the checks that the adapter lacks something for."""
        return self._names("skipped")

    @property
    def seconds(self) -> float:
        """How long the run took."""
        return sum(result.seconds for result in self.results)

    def _names(self, status: Status) -> tuple[str, ...]:
        return tuple(result.name for result in self.results if result.status == status)

    def __getitem__(self, name: str) -> Result:
        return next(result for result in self.results if result.name == name)

    def __str__(self) -> str:
        return self.to_text()

    def verdict(self) -> str:
        """Return the outcome in one line."""
        count = len(self.results) - len(self.skipped)
        outcome = f"{count - len(self.failures)} of {count} checks passed"
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return (
            f"{self.subject}: {'PASSED' if self.passed else 'FAILED'}, {outcome}{skipped} "
            f"({'quick' if self.quick else 'full'} run, "
            f"false-alarm budget {self.budget:g}, seed {self.seed})"
        )

    def to_text(self) -> str:
        """Return a table for a terminal, with the line that replays each failure."""
        rows = [("", "check", "p-value", "draws", "smallest fault")]
        rows += [
            (_MARKS[r.status], r.name, _p(r), f"{r.samples:,}", r.smallest_fault)
            for r in self.results
        ]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = [
            f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d:>{widths[3]}}  {e}"
            for a, b, c, d, e in rows
        ]
        for result in self.results:
            if result.status != "passed":
                lines += ["", f"{result.status.upper()} {result.name}: {result.asks}"]
                lines += [f"  {line}" for line in result.detail.splitlines()]
            if result.status == "failed":
                lines += [f"  replay: {result.replay}"]
        return "\n".join([*lines, "", self.verdict()])

    def to_markdown(self) -> str:
        """Return a Markdown section."""
        lines = [
            f"## {self.verdict()}",
            "",
            "| check | what must hold | p-value | draws | smallest fault | closest call |",
            "|---|---|---|---|---|---|",
        ]
        for r in self.results:
            cells = (r.name, r.asks, _p(r), f"{r.samples:,}", r.smallest_fault, r.evidence())
            escaped = [cell.replace("|", "\\|").replace("\n", "<br>") for cell in cells]
            lines.append(f"| {_MARKS[r.status]} {' | '.join(escaped)} |")
        replays = [f"- `{r.replay}`" for r in self.results if r.status == "failed"]
        return "\n".join([*lines, *(["", "To replay:", "", *replays] if replays else [])]) + "\n"

    def to_json(self, indent: int | None = 2) -> str:
        """Return everything as JSON."""
        whole = {"passed": self.passed, "failures": self.failures, **asdict(self)}
        return json.dumps(whole, indent=indent, ensure_ascii=False)

    @classmethod
    def list_from_json(cls, text: str) -> list[Report]:
        """Return the reports that ``quantal conform --format json`` has written."""
        return [cls._from_dict(whole) for whole in json.loads(text)]

    @classmethod
    def _from_dict(cls, whole: dict[str, Any]) -> Report:
        results = [
            Result(**{**result, "findings": tuple(Finding(**f) for f in result["findings"])})
            for result in whole["results"]
        ]
        fields = {name: whole[name] for name in ("subject", "budget", "seed", "quick")}
        return cls(**fields, results=tuple(results))


_MARKS = {"passed": "✓", "failed": "✗", "skipped": "–"}


def _p(result: Result) -> str:
    if result.p_value is None:
        return "exact" if result.findings else ""
    return f"{result.p_value:.2g}"
