"""Run the checks on an adapter."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable
from typing import Any

from quantal._arguments import flag, function_or_none, number
from quantal._errors import wrong_type, wrong_value
from quantal.conformance._adapter import Adapter
from quantal.conformance._finding import Finding
from quantal.conformance._registry import CHECKS, Check, Trial
from quantal.conformance._report import Report, Result, Status
from quantal.conformance._subject import ConformanceError, Subject

__all__ = ["judge", "names", "run"]

Progress = Callable[[int, int, str], None]

_SHOWN = 5  # failed questions of a check that a report spells out


def names() -> tuple[str, ...]:
    """Return the names of all checks, in the order in which they run.

    Examples
    --------
    >>> names()[:3]
    ('drop-probability', 'kept-values', 'mean')
    """
    import quantal.conformance._checks  # noqa: F401  (adds them)

    return tuple(CHECKS)


def run(
    adapter: Adapter,
    *,
    budget: float = 1e-6,
    seed: int = 0,
    only: str | Iterable[str] | None = None,
    quick: bool | None = None,
    fail_fast: bool = False,
    progress: Progress | None = None,
    spec: str | None = None,
) -> Report:
    """Judge an implementation of QSD.

    Parameters
    ----------
    adapter : Adapter
        The implementation.
    budget : float
        The probability that a right implementation fails the whole run, at most. It is divided
        equally over the questions in which chance plays a part, asked or not, so that a check
        gives the same answer alone.
    seed : int
        All seeds that the adapter is given come from this one, and so do the laws and shapes that
        are drawn at random.
    only : str or iterable of str, optional
        The names of the checks to run; all of them if left out.
    quick : bool, optional
        Try few shapes and dtypes, for a framework that compiles each of them. If left out, a run
        is quick for adapters that say ``compiles = True``, and full for all others.
    fail_fast : bool
        End a check at its first question that fails.
    progress : callable, optional
        Called with (number, of how many, name) before each check.
    spec : str, optional
        What ``quantal conform`` calls the adapter, for the lines that replay a check.

    Returns
    -------
    Report
        With ``.passed``, ``.failures`` and a ``Result`` for each check.

    Examples
    --------
    >>> from quantal.conformance.adapters import load
    >>> report = run(load("numpy"), only=["eval-identity", "bad-input"])
    >>> report.passed, report.failures
    (True, ())
    """
    chosen, budget = _chosen(only), _probability(budget)
    flag("fail_fast", fail_fast)
    function_or_none("progress", progress)
    if not isinstance(spec, str | None):
        raise wrong_type("spec", "the name of an adapter, or None", spec)
    subject = Subject(adapter, seed, quick)
    results = []
    for place, name in enumerate(chosen, 1):
        if progress is not None:
            progress(place, len(chosen), name)
        asked: dict[str, Any] = {"spec": spec, "quick": quick, "fail_fast": fail_fast}
        results.append(judge(name, subject, budget=budget, **asked))
    title = f"{adapter.name} {getattr(adapter, 'version', '')}".strip()
    return Report(title, budget, seed, subject.quick, tuple(results))


def judge(
    name: str,
    subject: Subject,
    *,
    budget: float,
    spec: str | None = None,
    quick: bool | None = None,
    fail_fast: bool = False,
) -> Result:
    """Judge a subject by one check, with the budget of a whole run."""
    (name,) = _chosen(name)
    check = CHECKS[name]
    questions = sum(check.questions(subject.quick) for check in CHECKS.values())
    trial = Trial(subject, _probability(budget) / questions)
    start = time.perf_counter()
    findings: list[Finding] = []
    status: Status = "skipped"
    detail = subject.lacks(check.needs)
    if not detail:
        raised = _collect(check, trial, findings, fail_fast)
        detail = _details(findings, raised)
        status = "failed" if detail else "passed"
    return Result(
        name,
        check.asks,
        check.fault,
        status,
        tuple(findings),
        trial.significance * check.questions(subject.quick),
        detail,
        time.perf_counter() - start,
        _replay(name, subject.seed, budget, spec, quick),
    )


def _collect(check: Check, trial: Trial, findings: list[Finding], fail_fast: bool) -> str:
    """Gather the answers of a check, and return what was raised, in words."""
    try:
        for finding in check.answer(trial):
            findings.append(finding)
            if fail_fast and not finding.passed:
                return ""
    except ConformanceError as error:
        return str(error)
    except (Exception, SystemExit) as error:  # whatever the implementation raises is its failure
        return _in_words(error)
    return "" if findings else "the check asked nothing"


def _in_words(error: BaseException) -> str:
    name = type(error).__name__
    try:
        return f"{name}: {error}".removesuffix(": ")
    except Exception:  # what somebody's own error raises when it is asked what it says
        return name


def _chosen(only: Any) -> tuple[str, ...]:
    """Return the checks that were asked for, in their order."""
    known = names()
    expected = "names of checks (quantal conform --list shows them)"
    if only is None:
        return known
    try:
        wanted = (
            (str.__str__(only),) if isinstance(only, str) else tuple(itertools.islice(only, 10**4))
        )
    except Exception:  # a TypeError, or what somebody's own class raises
        raise wrong_type("only", "names of checks", only) from None
    if not wanted:
        raise wrong_value("only", expected, only)
    for name in wanted:
        if not isinstance(name, str):
            raise wrong_type("only", "names of checks", name)
        if str.__str__(name) not in known:
            raise wrong_value("only", expected, name)
    return tuple(name for name in known if name in wanted)


def _probability(budget: Any) -> float:
    expected = "a probability in (0, 1)"
    found = number("budget", budget, expected)
    if not 0 < found < 1:
        raise wrong_value("budget", expected, budget)
    return found


def _details(findings: list[Finding], raised: str) -> str:
    lines = [f"{finding.what}: {finding.detail}" for finding in findings if not finding.passed]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"… and {len(lines) - _SHOWN} more"]
    return "\n".join([*lines, raised] if raised else lines)


def _replay(name: str, seed: int, budget: float, spec: str | None, quick: bool | None) -> str:
    if spec is None:
        chosen = "" if quick is None else f", quick={quick}"
        arguments = f"only={name!r}, budget={budget:g}, seed={seed}{chosen}"
        return f"quantal.conformance.run(adapter, {arguments})"
    chosen = "" if quick is None else " --quick" if quick else " --full"
    return f"quantal conform {spec} --only {name} --budget {budget:g} --seed {seed}{chosen}"
