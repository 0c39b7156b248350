"""The check of what must be refused."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from quantal.conformance.adapter import Settings
from quantal.conformance.check import Finding, Trial, exact

NAN = float("nan")
BAD = {
    "rate=-0.1": Settings(-0.1, 1.0),
    "rate=1.1": Settings(1.1, 1.0),
    "rate=nan": Settings(NAN, 1.0),
    "alpha=0": Settings(0.5, 0.0),
    "alpha=-1": Settings(0.5, -1.0),
    "alpha=nan": Settings(0.5, NAN),
    "vary='qp'": Settings(0.5, 1.0, vary="qp"),
    "broadcast_dims=(2,)": Settings(0.5, 1.0, broadcast_dims=(2,)),
    "broadcast_dims=(-3,)": Settings(0.5, 1.0, broadcast_dims=(-3,)),
    "broadcast_dims=(0, 0)": Settings(0.5, 1.0, broadcast_dims=(0, 0)),
    "p_broadcast_dims=(2,)": Settings(0.5, 1.0, p_broadcast_dims=(2,)),
    "x of integers": Settings(0.5, 1.0),
}


@exact("bad-input", fault="a value out of range that is let through")
def bad_input(trial: Trial) -> Iterator[Finding]:
    """What makes no sense raises a ValueError or a TypeError."""
    (seed,) = trial.subject.seeds("bad-input", 1)
    for what, settings in BAD.items():
        x = np.ones((4, 6), np.int32 if "integers" in what else np.float32)
        try:
            trial.subject.apply(x, settings, seed)
        except (ValueError, TypeError):
            refused, detail = True, ""
        except Exception as error:
            refused, detail = False, f"{what} raised {type(error).__name__}: {error}"
        else:
            refused, detail = False, f"{what} was let through"
        yield trial.require(f"{what} is refused", refused, detail)
