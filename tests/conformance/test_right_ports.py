"""The kit on trial: it accepts right implementations that are unlike quantal's own."""

from __future__ import annotations

import pytest
from recipe import Recipe
from right_ports import RIGHT

from quantal.conformance import names, run
from quantal.conformance._registry import CHECKS

CHANCY = {"vary-q", "unit-mean", "resolution", "calls-law", "drop-by-place", "size-by-place"}
SLOW = {"no-repeats"}


def lacking(port: type[Recipe]) -> set[str]:
    """What the checks may need that a port does not have."""
    half = [dtype.endswith("float16") for dtype in getattr(port, "dtypes", ("float16", "float32"))]
    there = {
        "grad": port.grad is not None,
        "calls": port.calls is not None,
        "half precision": any(half),
        "single precision": not all(half),
    }
    return {need for need, has in there.items() if not has}


@pytest.mark.parametrize("port", RIGHT, ids=lambda port: port.__name__)
def test_passes(port: type[Recipe]) -> None:
    exact = {name for name in names() if not CHECKS[name].questions(False)}
    report = run(port(), seed=4, only=(exact | CHANCY) - SLOW)
    assert report.passed, str(report)
    needs = lacking(port)
    assert {CHECKS[name].needs for name in report.skipped} <= needs
    assert all(report[name].detail for name in report.skipped)
