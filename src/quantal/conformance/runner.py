"""Run the checks on an adapter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from quantal.checks import wrong_value
from quantal.conformance.adapter import Adapter
from quantal.conformance.check import CHECKS, Check, Finding, Trial
from quantal.conformance.report import Report, Result, Status
from quantal.conformance.subject import ConformanceError, Subject

__all__ = ["names", "run"]

Progress = Callable[[int, int, str], None]


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
    replay_as: str | None = None,
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
    replay_as : str, optional
        What the replay lines call the adapter, if not its own name.

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
    if not 0 < budget < 1:
        raise wrong_value("budget", "a probability in (0, 1)", budget)
    if not 0 <= seed < 2**63:
        raise wrong_value("seed", "an integer in [0, 2**63)", seed)
    known = names()
    wanted = known if only is None else (only,) if isinstance(only, str) else tuple(only)
    for name in wanted:
        if name not in known:
            raise wrong_value("only", f"names of checks ({', '.join(known)})", name)
    level = budget / sum(check.parts > 0 for check in CHECKS.values())
    subject = Subject(adapter, seed)
    spec = replay_as or adapter.name
    results = []
    chosen = [CHECKS[name] for name in known if name in wanted]
    for number, check in enumerate(chosen, 1):
        if progress is not None:
            progress(number, len(chosen), check.name)
        replay = f"quantal conform {spec} --only {check.name} --budget {budget:g} --seed {seed}"
        results.append(_judge(check, subject, level if check.parts else 0.0, replay))
    version = getattr(adapter, "version", "")
    return Report(f"{adapter.name} {version}".strip(), budget, seed, tuple(results))


def _judge(check: Check, subject: Subject, level: float, replay: str) -> Result:
    start = time.perf_counter()
    findings: list[Finding] = []
    status: Status = "skipped"
    detail = "the adapter has no `calls`"
    if subject.has_calls or not check.needs_calls:
        detail = ""
        try:
            findings.extend(check.answer(Trial(subject, level / max(check.parts, 1))))
        except ConformanceError as error:
            detail = str(error)
        except Exception as error:  # whatever the implementation raises is its failure
            detail = f"{type(error).__name__}: {error}"
        failed = [f"{f.what}: {f.detail}" for f in findings if not f.passed]
        detail = "\n".join([*failed[:5], *_more(failed), *([detail] if detail else [])])
        status = "failed" if detail or not findings else "passed"
    seconds = time.perf_counter() - start
    return Result(
        check.name,
        check.asks,
        check.fault,
        status,
        tuple(findings),
        level,
        detail,
        seconds,
        replay,
    )


def _more(failed: list[str]) -> list[str]:
    return [f"… and {len(failed) - 5} more"] if len(failed) > 5 else []
