"""Run the checks on an adapter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from quantal._errors import wrong_value
from quantal.conformance.adapter import Adapter
from quantal.conformance.check import CHECKS, Finding, Trial
from quantal.conformance.report import Report, Result, Status
from quantal.conformance.subject import ConformanceError, Subject

__all__ = ["judge", "names", "run"]

Progress = Callable[[int, int, str], None]

_SHOWN = 5  # failed questions of a check that a report spells out


def names() -> tuple[str, ...]:
    """Return the names of all checks, in the order in which they run.

    Examples
    --------
    >>> names()[:3]
    ('drop-probability', 'kept-values', 'resolution')
    """
    import quantal.conformance.checks  # noqa: F401  (adds them)

    return tuple(CHECKS)


def run(
    adapter: Adapter,
    *,
    budget: float = 1e-6,
    seed: int = 0,
    only: str | Iterable[str] | None = None,
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
        equally over the checks in which chance plays a part, run or not, so that a check gives
        the same answer alone.
    seed : int
        All seeds that the adapter is given come from this one.
    only : str or iterable of str, optional
        The names of the checks to run; all of them if left out.
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
    if not 0 <= seed < 2**63:
        raise wrong_value("seed", "an integer in [0, 2**63)", seed)
    known = names()
    wanted = known if only is None else (only,) if isinstance(only, str) else tuple(only)
    for name in wanted:
        _known(name)
    chosen = [name for name in known if name in wanted]
    subject = Subject(adapter, seed)
    results = []
    for number, name in enumerate(chosen, 1):
        if progress is not None:
            progress(number, len(chosen), name)
        results.append(judge(name, subject, budget=budget, spec=spec))
    version = getattr(adapter, "version", "")
    return Report(f"{adapter.name} {version}".strip(), budget, seed, tuple(results))


def judge(name: str, subject: Subject, *, budget: float, spec: str | None = None) -> Result:
    """Judge a subject by one check, with the budget of a whole run."""
    _known(name)
    if not 0 < budget < 1:
        raise wrong_value("budget", "a probability in (0, 1)", budget)
    check = CHECKS[name]
    share = budget / sum(check.parts > 0 for check in CHECKS.values()) if check.parts else 0.0
    start = time.perf_counter()
    findings: list[Finding] = []
    status: Status = "skipped"
    detail = "the adapter has no `calls`"
    if subject.has_calls or not check.needs_calls:
        raised = ""
        try:
            findings.extend(check.answer(Trial(subject, share / max(check.parts, 1))))
        except ConformanceError as error:
            raised = str(error)
        except Exception as error:  # whatever the implementation raises is its failure
            raised = f"{type(error).__name__}: {error}"
        detail = _details(findings, raised)
        status = "failed" if detail or not findings else "passed"
    return Result(
        name,
        check.asks,
        check.fault,
        status,
        tuple(findings),
        share,
        detail,
        time.perf_counter() - start,
        _replay(name, subject.seed, budget, spec),
    )


def _known(name: str) -> None:
    if name not in names():
        raise wrong_value("only", f"names of checks ({', '.join(names())})", name)


def _details(findings: list[Finding], raised: str) -> str:
    lines = [f"{finding.what}: {finding.detail}" for finding in findings if not finding.passed]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"… and {len(lines) - _SHOWN} more"]
    return "\n".join([*lines, raised] if raised else lines)


def _replay(name: str, seed: int, budget: float, spec: str | None) -> str:
    if spec is None:
        return f"quantal.conformance.run(adapter, only={name!r}, budget={budget:g}, seed={seed})"
    return f"quantal conform {spec} --only {name} --budget {budget:g} --seed {seed}"
