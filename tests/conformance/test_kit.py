"""The kit itself: it accepts what is right, keeps its promises, and says what it did."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys

import numpy as np
import pytest
from recipe import Recipe
from scipy import stats

import quantal.numpy
from quantal.conformance import Report, names, run
from quantal.conformance._bounds import POWER
from quantal.conformance._registry import CHECKS
from quantal.conformance.adapters import BUILT_IN, load
from quantal.conformance.adapters.numpy import native


@pytest.fixture(scope="module")
def report() -> Report:
    return run(load("numpy"), seed=1, spec="numpy")


@pytest.mark.parametrize("spec", ["numpy-key", "reference"])
def test_right_implementations_pass(spec: str) -> None:
    # Not those that take long, which numpy passes below, as all adapters do before a release.
    exact = [name for name in names() if not CHECKS[name].questions(True)]
    found = run(load(spec), seed=2, quick=True, only=[*exact, "vary-q", "p-granularity-law"])
    assert found.passed, str(found)
    assert not found.skipped


def test_numpy_passes(report: Report) -> None:
    assert report.passed, str(report)
    assert [result.name for result in report.results] == list(names())


def test_the_budget_is_spent_once(report: Report) -> None:
    spent = 0.0
    for result in report.results:
        judged = [f for f in result.findings if f.p_value is not None]
        parts = CHECKS[result.name].questions(report.quick)
        assert len(judged) <= parts, result.name
        spent += sum(f.significance or 0.0 for f in judged)
        assert bool(judged) == (parts > 0)
    assert spent <= report.budget * (1 + 1e-9)


def test_samples_are_enough_for_the_stated_fault(report: Report) -> None:
    for result in report.results:
        for finding in result.findings:
            if finding.p_value is not None:
                assert finding.fault is not None
                assert finding.stated is not None
                assert finding.fault <= finding.stated * (1 + 1e-9), (result.name, finding)


def test_samples_follow_from_the_budget() -> None:
    few = run(native, only="mean", budget=0.05)["mean"].samples
    many = run(native, only="mean", budget=1e-6)["mean"].samples
    assert few < many


def test_a_check_alone_gives_the_same_answer(report: Report) -> None:
    for name in ("kept-values", "counts-vary", "p-granularity-masks"):
        alone = run(native, seed=1, only=name)[name]
        assert alone.findings == report[name].findings


def test_another_seed_is_another_run(report: Report) -> None:
    other = run(native, seed=3, only="mean")["mean"]
    assert [f.seen for f in other.findings] != [f.seen for f in report["mean"].findings]


def test_replay_lines(report: Report) -> None:
    expected = "quantal conform numpy --only mean --budget 1e-06 --seed 1"
    assert report["mean"].replay == expected
    own = run(native, only="mean")["mean"].replay
    assert own == "quantal.conformance.run(adapter, only='mean', budget=1e-06, seed=0)"


def test_the_report_in_three_forms(report: Report) -> None:
    assert json.loads(report.to_json())["passed"] is True
    assert Report.list_from_json(f"[{report.to_json()}]") == [report]
    for name in names():
        assert name in report.to_text()
        assert f"| ✓ {name} |" in report.to_markdown()
    assert report.verdict() in report.to_text()


def test_frozen(report: Report) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.seed = 5  # type: ignore[misc]


class Bare:
    """An adapter with what the protocol asks for and no more."""

    name = "bare"
    apply = staticmethod(native.apply)
    grad = staticmethod(native.grad)


def test_an_adapter_without_calls_has_those_checks_skipped() -> None:
    wanted = ["calls-independent", "seed-plus-call", "layer-determinism", "bad-input"]
    found = run(Bare(), only=wanted)
    assert found.passed
    assert found.skipped == ("calls-independent", "seed-plus-call", "layer-determinism")
    assert "no `calls`" in found.to_text()


class Raises(Recipe):
    def apply(self, x, **settings):
        raise RuntimeError("out of memory")


class RaisesWithoutWords(Recipe):
    def apply(self, x, **settings):
        raise AssertionError


class Leaves(Recipe):
    def apply(self, x, **settings):
        sys.exit(3)


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise ValueError


class RaisesTheUnspeakable(Recipe):
    def apply(self, x, **settings):
        raise UnspeakableError


class RawMemory(Recipe):
    def apply(self, x, **settings):
        return np.zeros(x.shape, "V4")


class WrongShape(Recipe):
    def apply(self, x, **settings):
        return super().apply(x, **settings)[:1]


class NotArrays(Recipe):
    def apply(self, x, **settings):
        return super().apply(x, **settings).tolist()


class NaNCalls(Recipe):
    def calls(self, x, **settings):
        return [call * np.nan for call in super().calls(x, **settings)]


@pytest.mark.parametrize(
    ("mutant", "check", "words"),
    [
        (Raises, "mean", "RuntimeError: out of memory"),
        (RaisesWithoutWords, "determinism", "AssertionError"),
        (Leaves, "mean", "SystemExit: 3"),
        (RaisesTheUnspeakable, "mean", "UnspeakableError"),
        (RawMemory, "mean", "expected the dtype float32, received |V4"),
        (WrongShape, "mean", "expected the shape"),
        (NotArrays, "mean", "expected a NumPy array, received list"),
        (NaNCalls, "calls-independent", "coefficients that are not finite"),
    ],
)
def test_what_is_no_adapter_fails_and_says_why(mutant, check: str, words: str) -> None:
    found = run(mutant(), only=check)
    assert found.failures == (check,)
    assert words in found[check].detail


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="only: expected names of checks"):
        run(native, only="no-such-check")
    with pytest.raises(ValueError, match="budget: expected"):
        run(native, budget=0.0)
    with pytest.raises(ValueError, match="only: expected names of checks"):
        run(native, only=[])
    with pytest.raises(TypeError, match="only: expected names of checks"):
        run(native, only=3)
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match="seed: expected an integer in"):
            run(native, seed=seed, only="bad-input")
    for seed in (0.5, "1", None, True):
        with pytest.raises(TypeError, match="seed: expected an integer in"):
            run(native, seed=seed, only="bad-input")
    with pytest.raises(TypeError, match="quick: expected True, False or None"):
        run(native, quick="no", only="bad-input")
    with pytest.raises(TypeError, match="adapter: expected an object with a name"):
        run(object(), only="bad-input")
    with pytest.raises(ValueError, match="adapter: expected a built-in adapter"):
        load("no-such-adapter")


@pytest.mark.parametrize("dtypes", [5, "float32", (), ("float128",), ([],)])
def test_dtypes_that_are_none(dtypes) -> None:
    adapter = Recipe()
    adapter.dtypes = dtypes  # type: ignore[attr-defined]
    with pytest.raises(
        (TypeError, ValueError), match=r"^adapter\.dtypes: expected some of float16"
    ):
        run(adapter, only="bad-input")


def test_the_kit_imports_no_framework() -> None:
    code = (
        "import sys, quantal.conformance as kit, quantal.conformance.adapters as a\n"
        "kit.run(a.load('numpy'), only='mean')\n"
        "print([m for m in ('torch', 'tensorflow', 'keras', 'jax', 'flax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_built_in_adapters_are_where_they_are_said_to_be() -> None:
    import importlib.util

    for place, _ in BUILT_IN.values():
        assert importlib.util.find_spec(place.partition(":")[0]) is not None


# --- power, end to end ---------------------------------------------------------------------------


class Off:
    """quantal.numpy with a fault of the size that a check has promised to find."""

    name = "off"

    def __init__(self, rate: float = 1.0, alpha: float = 1.0, size: float = 1.0) -> None:
        self.rate, self.alpha, self.size = rate, alpha, size

    def apply(self, x, *, seed, rate, alpha, **settings):
        rng = np.random.default_rng(seed)
        wrong = quantal.numpy.dilute(x, rate * self.rate, alpha * self.alpha, rng=rng, **settings)
        return (wrong * self.size).astype(x.dtype)

    def grad(self, x, upstream, **settings):
        return self.apply(x, **settings), self.apply(upstream, **settings)


class Copies(Off):
    """One unit in a hundred is a copy of its neighbour."""

    def apply(self, x, *, seed, **settings):
        y = super().apply(x, seed=seed, **settings)
        copied = np.random.default_rng([seed, 1]).random(y.shape) < 0.01
        copied[..., ::2] = False
        return np.where(copied, np.roll(y, 1, axis=-1), y)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        (Off(rate=1.01), "drop-probability"),
        (Off(alpha=1.05), "kept-values"),
        (Off(alpha=1 / 1.05), "kept-values"),
        (Off(size=1.01), "mean"),
        (Off(size=1.02**0.5), "second-moment"),
        (Copies(), "units-independent"),
    ],
    ids=["rate", "alpha", "alpha-low", "mean", "second-moment", "correlation"],
)
def test_stated_faults_are_found(fault: Off, check: str) -> None:
    runs = 4
    missed = sum(run(fault, only=check, seed=seed, fail_fast=True).passed for seed in range(runs))
    assert stats.binom.sf(missed - 1, runs, 1 - POWER) > 1e-6


def test_false_alarms_are_no_more_than_a_loose_budget() -> None:
    # All but those that take long for other reasons than chance; `benchmarks/soak.py` runs all.
    runs, budget = 4, 0.01
    slow = ("call-sizes", "large-call", "triples-independent", "units-independent")
    chancy = [n for n in names() if CHECKS[n].questions(True) and n not in slow]
    reports = [
        run(native, budget=budget, seed=1000 + seed, only=chancy, quick=True)
        for seed in range(runs)
    ]
    alarms = sum(not report.passed for report in reports)
    assert stats.binom.sf(alarms - 1, runs, budget) > 1e-6
