"""The kit on trial: it rejects every wrong implementation, by the check that names the fault."""

from __future__ import annotations

import pytest
from mutants import MUTANTS
from port import Port
from recipe import Recipe

from quantal.conformance import names, run


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 250


def test_every_check_has_a_mutant() -> None:
    assert set(MUTANTS.values()) == set(names())


@pytest.mark.parametrize("right", [Recipe, Port], ids=lambda right: right.__name__)
def test_what_they_spoil_is_right(right: type[Recipe]) -> None:
    report = run(right(), seed=3, quick=True)
    assert report.passed, str(report)
    assert not report.skipped


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_rejected(mutant: type[Recipe]) -> None:
    check = MUTANTS[mutant]
    report = run(mutant(), only=check, fail_fast=True)
    assert report.failures == (check,), str(report)
    assert report[check].detail
