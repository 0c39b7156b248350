"""Whatever is passed to the kit: it does it, or raises the one error of the house."""

import fractions
from itertools import count

import pytest

from quantal.conformance import run
from quantal.conformance.adapters.numpy import native

RIGHT = {
    "adapter": native, "only": ["eval-identity"], "budget": 1e-6, "seed": 0, "quick": True,
    "fail_fast": False, "progress": None, "spec": None,
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_one_form_for_every_hostile_argument(name, hostile, complaint):
    for wrong in hostile:
        all_checks = name == "only" and wrong is None
        own_function = name == "progress" and callable(wrong)  # which may raise what it likes
        if not (all_checks or own_function):
            assert complaint(run, **RIGHT | {name: wrong}) is None, type(wrong)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_wrong_is_refused_before_anything_runs(name):
    class Asked(Exception):
        pass

    def asked(*_):
        raise Asked

    with pytest.raises(Asked):
        run(**RIGHT | {"progress": asked})
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected .* Received: {name}="):
        run(**RIGHT | {"progress": asked} | {name: 1.5})


def test_checks_without_end_and_other_kinds_of_numbers():
    with pytest.raises(TypeError, match="only: expected names of checks"):
        run(**RIGHT | {"only": count()})
    report = run(**RIGHT | {"budget": fractions.Fraction(1, 10**6)})
    assert report.passed
    assert str(report)
