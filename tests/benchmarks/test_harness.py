"""The arithmetic of the harness, with clocks that are known."""

import json

import pytest

from benchmarks.harness import Rounds, Task, compare, timed
from benchmarks.store import Result, Row, combine

FEW = Rounds(seconds=0, fewest=7, most=7, least=0, warm_up=0)


class Clock:
    """A clock that moves only when a candidate works."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now

    def candidate(self, name, seconds):
        """A candidate that takes so long; ``seconds`` may be a function of the call's number."""
        took = seconds if callable(seconds) else lambda call: seconds

        def call():
            self.now += took(self.calls.count(name))
            self.calls.append(name)

        return call


def ratios(clock, rounds, **seconds):
    candidates = {name: clock.candidate(name, taken) for name, taken in seconds.items()}
    first = next(iter(seconds))
    return compare(candidates, dict.fromkeys(seconds, first), rounds, clock=clock)


def test_a_ratio_is_that_of_the_times():
    timings = ratios(Clock(), FEW, own=0.25, other=0.125)
    assert timings["other"].seconds == 0.125
    assert timings["other"].ratio == timings["other"].low == timings["other"].high == 0.5
    assert timings["own"].ratio == 1
    assert timings["own"].rounds == 7


def test_compilation_is_outside_the_clock():
    rounds = Rounds(seconds=0, fewest=3, most=3, warm_up=3)
    timings = ratios(Clock(), rounds, own=1.0, other=lambda call: 100.0 if call < 3 else 2.0)
    assert timings["other"].seconds == 2


def test_a_machine_that_slows_down_does_not_change_a_ratio():
    # Each call is 1% slower than the one before: the mean over all rounds would not see half.
    timings = ratios(Clock(), FEW, own=lambda n: 2 * 1.01**n, other=lambda n: 1.01**n)
    assert timings["other"].ratio == pytest.approx(0.5)


def test_one_slow_round_does_not_move_the_median():
    timings = ratios(Clock(), FEW, own=1.0, other=lambda call: 50.0 if call == 3 else 2.0)
    assert (timings["other"].seconds, timings["other"].ratio) == (2, 2)


def test_quartiles_are_of_the_rounds():
    rounds = Rounds(seconds=0, fewest=5, most=5, least=0, warm_up=0)
    # The first call only says how often to repeat.
    timings = ratios(Clock(), rounds, own=1.0, other=lambda call: float(call))
    assert [timings["other"].low, timings["other"].ratio, timings["other"].high] == [2, 3, 4]


def test_every_round_calls_each_candidate_once_in_changing_order():
    clock = Clock()
    ratios(clock, Rounds(seconds=0, fewest=20, most=20, least=0, warm_up=0), a=1.0, b=1.0, c=1.0)
    rounds = [tuple(clock.calls[i : i + 3]) for i in range(3, len(clock.calls), 3)]
    assert len(rounds) == 20
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) > 3


def test_short_calls_are_repeated_within_a_round():
    clock = Clock()
    rounds = Rounds(seconds=0, fewest=2, most=2, least=1.0, warm_up=0)
    timings = ratios(clock, rounds, own=0.25, other=2.0)
    assert clock.calls.count("own") == 1 + 2 * 4
    assert clock.calls.count("other") == 1 + 2
    assert timings["other"].ratio == 8


def test_in_a_single_round_only_baselines_are_repeated():
    clock = Clock()
    rounds = Rounds(seconds=0, fewest=1, most=1, least=4.0, warm_up=0)
    timings = ratios(clock, rounds, own=1.0, slow=2.0)
    assert clock.calls.count("own") == 1 + 4
    assert clock.calls.count("slow") == 1
    assert timings["slow"].ratio == 2


@pytest.mark.parametrize(("seconds", "expected"), [(0, 5), (20, 10), (1e9, 41)])
def test_time_sets_the_rounds_within_limits(seconds, expected):
    rounds = Rounds(seconds, fewest=5, most=41, error=-1)  # of which no round is sure
    assert ratios(Clock(), rounds, own=1.0, other=1.0)["own"].rounds == expected


def test_a_sure_ratio_needs_no_more_rounds():
    rounds = Rounds(1e9, fewest=10, most=1000, error=0.01)
    assert ratios(Clock(), rounds, own=1.0, other=0.5)["other"].rounds == 10
    # Ratios from 0.75 to 1.25 in turn: the quartiles are 0.25 apart, and the error is
    # 0.93 · 0.25 / √n, which is below 0.01 from n = 541 on; it is looked at every ten rounds.
    wide = ratios(Clock(), rounds, own=1.0, other=lambda call: 0.75 + call % 5 / 8)["other"]
    assert (wide.low, wide.ratio, wide.high) == (0.875, 1, 1.125)
    assert wide.rounds == 550
    assert wide.error == pytest.approx(0.93 * 0.25 / 550**0.5)


def test_one_unsure_ratio_keeps_all_in_the_rounds():
    rounds = Rounds(1e9, fewest=10, most=60, error=0.01)
    timings = ratios(Clock(), rounds, own=1.0, a=1.0, b=lambda call: 0.75 + call % 5 / 8)
    assert timings["a"].rounds == timings["b"].rounds == 60


def test_each_candidate_has_its_own_baseline():
    clock = Clock()
    candidates = {name: clock.candidate(name, s) for name, s in {"a": 1, "b": 2, "c": 8}.items()}
    timings = compare(candidates, {"a": "a", "b": "b", "c": "b"}, FEW, clock=clock)
    assert timings["c"].ratio == 4


def test_rows_count_by_element():
    (row,) = timed({"size": 10, "mode": "eager"}, {"a": lambda: sum(range(1000))}, {"a": "a"}, FEW)
    assert row.what == {"size": 10, "mode": "eager", "candidate": "a", "baseline": "a"}
    assert row.values["ratio"] == 1
    assert 0 < row.values["ns"] < 1e9


def test_a_quick_task_hardly_measures():
    assert Task(quick=True).rounds(60).most == 2
    assert Task().rounds(60, fewest=9) == Rounds(60, fewest=9)


def test_processes_become_a_median_and_runs_a_spread():
    # The medians of the runs are 1.1 and 0.8; one process that is far off moves neither.
    measured = {0: (1.0, 1.1, 9.0), 1: (0.8, 0.1, 0.9)}
    processes = [
        (run, [Row({"a": 1}, {"ratio": value})])
        for run, found in measured.items()
        for value in found
    ]
    (row,) = combine(processes)
    assert row.values == {"ratio": pytest.approx(0.95)}
    assert row.spread == {"ratio": pytest.approx(0.3 / 0.95)}


def test_one_run_has_no_spread():
    (row,) = combine([(0, [Row({}, {"x": value})]) for value in (1.0, 2.0, 4.0)])
    assert row == Row({}, {"x": 2.0}, {})


def test_rows_are_told_apart_by_what_they_measured():
    first = [Row({"a": 1}, {"x": 1.0}), Row({"a": 2}, {"x": 5.0})]
    rows = combine([(0, first), (1, [Row({"a": 1}, {"x": 3.0})])])
    assert [(row.what["a"], row.values["x"]) for row in rows] == [(1, 2.0), (2, 5.0)]
    assert [row.spread for row in rows] == [{"x": 1.0}, {}]


def test_a_result_survives_its_file(tmp_path):
    rows = [Row({"mode": "eager", "size": 4}, {"ratio": 0.4321}, {"ratio": 0.02})]
    result = Result("torch", {"processor": "a, b", "quick": False}, rows)
    assert Result.read(result.write(tmp_path)) == result
    assert result.write(tmp_path).name == "torch.json"


def test_a_file_has_no_more_digits_than_mean_something(tmp_path):
    rows = [Row({}, {"ratio": 0.123456789})]
    stored = json.loads(Result("torch", {}, rows).write(tmp_path).read_text())
    assert stored["rows"][0]["values"] == {"ratio": 0.12346}


def test_rows_are_found_by_what_they_are():
    rows = [Row({"a": 1, "b": 2}, {}), Row({"a": 1, "b": 3}, {})]
    result = Result("torch", {}, rows)
    assert result.find(a=1) == rows
    assert result.one(a=1, b=3) == rows[1]
    assert result.one(a=2) is None
    with pytest.raises(ValueError, match="2 rows of suite torch are"):
        result.one(a=1)
