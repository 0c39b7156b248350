"""The pytest plugin of quantal's conformance kit: one test for each check, in three lines.

    from my_port import adapter

    def test_qsd(qsd_check):
        qsd_check(adapter)

It stands outside the package so that pytest, which imports every plugin that it finds, loads
neither NumPy nor SciPy for those who have no such test.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the budget, the seed and the effort of the kit."""
    group = parser.getgroup("quantal", "quantal's conformance kit")
    group.addoption("--qsd-budget", type=float, default=1e-6, help="false-alarm budget of a run")
    group.addoption("--qsd-seed", type=int, default=0, help="seed of a run")
    help_ = "few shapes and dtypes: the default where a framework compiles each of them"
    group.addoption("--qsd-quick", action="store_const", const=True, help=help_)
    help_ = "all shapes and dtypes: the default elsewhere"
    group.addoption("--qsd-full", dest="qsd_quick", action="store_const", const=False, help=help_)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each check."""
    if "qsd_check" in metafunc.fixturenames:
        from quantal.conformance import names

        metafunc.parametrize("qsd_check", names(), indirect=True)


@pytest.fixture
def qsd_check(request: pytest.FixtureRequest) -> Callable[[Any], None]:
    """Judge an adapter by one check of the kit: call it with the adapter."""
    from quantal.conformance._runner import judge
    from quantal.conformance._subject import Subject

    def check(adapter: Any) -> None:
        seed: int = request.config.getoption("--qsd-seed")
        quick: bool | None = request.config.getoption("qsd_quick")
        subject = request.config.stash.get(_SUBJECT, None)
        # Its draws are shared by the tests of one adapter, which follow one another.
        if subject is None or subject.adapter is not adapter or subject.seed != seed:
            subject = request.config.stash[_SUBJECT] = Subject(adapter, seed, quick)
        budget: float = request.config.getoption("--qsd-budget")
        result = judge(request.param, subject, budget=budget, quick=quick)
        if result.status == "skipped":
            pytest.skip(result.detail)
        if result.status == "failed":
            message = f"{adapter.name}: {result.asks}\n{result.detail}\nreplay: {result.replay}"
            pytest.fail(message, pytrace=False)

    return check


_SUBJECT = pytest.StashKey[Any]()
