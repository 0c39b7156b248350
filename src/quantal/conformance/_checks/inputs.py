"""The check of what must be refused."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantal.conformance._adapter import Settings
from quantal.conformance._finding import Finding
from quantal.conformance._registry import Trial, exact
from quantal.conformance._subject import ConformanceError

NAN, INF = float("nan"), float("inf")
BAD = {
    "rate=-0.1": Settings(-0.1, 1.0),
    "rate=1.1": Settings(1.1, 1.0),
    "rate=nan": Settings(NAN, 1.0),
    "rate=inf": Settings(INF, 1.0),
    "alpha=0": Settings(0.5, 0.0),
    "alpha=-1": Settings(0.5, -1.0),
    "alpha=nan": Settings(0.5, NAN),
    "alpha=-inf": Settings(0.5, -INF),
    "vary='qp'": Settings(0.5, 1.0, vary="qp"),
    "broadcast_dims=(2,)": Settings(0.5, 1.0, broadcast_dims=(2,)),
    "broadcast_dims=(-3,)": Settings(0.5, 1.0, broadcast_dims=(-3,)),
    "broadcast_dims=(0, 0)": Settings(0.5, 1.0, broadcast_dims=(0, 0)),
    "broadcast_dims=(1, -1)": Settings(0.5, 1.0, broadcast_dims=(1, -1)),
    "p_broadcast_dims=(-3,)": Settings(0.5, 1.0, p_broadcast_dims=(-3,)),
    "p_broadcast_dims=(2,)": Settings(0.5, 1.0, p_broadcast_dims=(2,)),
    "p_broadcast_dims=(0, -2)": Settings(0.5, 1.0, p_broadcast_dims=(0, -2)),
}
NOT_FLOATING = {"integers": np.int32, "booleans": np.bool_, "complex numbers": np.complex64}


@exact("bad-input", fault="a value out of range that is let through")
def bad_input(trial: Trial) -> Iterator[Finding]:
    """What makes no sense raises a ValueError, a TypeError or, for an axis, an IndexError."""
    for what, settings in BAD.items():
        yield _refused(trial, what, settings, np.ones((4, 6), trial.subject.dtype))
    for what, dtype in NOT_FLOATING.items():
        yield _refused(trial, f"x of {what}", Settings(0.5, 1.0), np.ones((4, 6), dtype))


def _refused(trial: Trial, what: str, settings: Settings, x: np.ndarray) -> Finding:
    (seed,) = trial.subject.seeds("bad-input", 1)
    detail = f"{what} was let through"
    try:
        trial.subject.apply(x, settings, seed)
    except (ValueError, TypeError, IndexError):
        return trial.require(f"{what} is refused", True, "")
    except ConformanceError:  # what came out was no array, or of another shape or kind
        pass
    except Exception as error:
        detail = f"{what} raised {type(error).__name__}: {error}"
    return trial.require(f"{what} is refused", False, detail)
