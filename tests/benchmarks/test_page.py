"""The page and the README's table, from results that are made up."""

import mmap
import platform
import re
from pathlib import Path

import numpy as np
import pytest

import quantal
from benchmarks import layers, machine
from benchmarks.law import distance, floor
from benchmarks.memory import from_c_library, rise
from benchmarks.report import bars, page, readme
from benchmarks.report.markdown import ratio
from benchmarks.store import Result, Row

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "benchmarks"
HEADER = {
    "processor": "a processor", "threads": 2, "cores": 2, "caches": ["L1 32K", "L2 1024K"],
    "memory": "8 GiB", "system": "Linux", "load at the start": 0.1, "versions": {"torch": "9.9"},
    "command": "nox -s bench -- torch", "date": "2026-01-01", "seconds": 60, "runs": 2,
    "processes": 3, "quick": False, "device": "CPU",
}  # fmt: skip


def row(value, spread=0.01, **what):
    common = {"memory": "kept", "mode": "eager", "dtype": "float32", "size": layers.LARGE}
    common |= {"group": "all", "candidate": layers.QSD, "baseline": layers.DROPOUT}
    values = {"ns": 4.0, "ratio": value, "low": value, "high": value, "rounds": 9}
    return Row(common | what, values, {"ratio": spread})


def torch(*rows):
    return {"torch": Result("torch", HEADER, list(rows))}


def verdict(results, title):
    (found,) = [one for one in bars.judge(results) if one.bar.title.startswith(title)]
    return found


def test_a_bar_is_met_missed_or_not_measured():
    title = "PyTorch, eager, 1024 × 4096"
    assert verdict(torch(row(0.5)), title).word == "met"
    assert verdict(torch(row(0.51)), title).word == "**missed**"
    assert verdict({}, title).word == "not measured"
    assert verdict(torch(row(0.5, size=layers.SMALL)), title).word == "not measured"


def test_other_memory_is_not_judged():
    assert verdict(torch(row(0.9, group="default")), "PyTorch, eager, 1024").word == "not measured"


def test_a_bar_from_below():
    gammas = {"group": "slow", "candidate": layers.GAMMAS, "baseline": layers.QSD}
    assert verdict(torch(row(21.0, **gammas)), "PyTorch, eager: two").word == "met"
    assert verdict(torch(row(19.0, **gammas)), "PyTorch, eager: two").word == "**missed**"


def test_the_worst_model_counts():
    rows = [
        Row({"framework": "jax", "experiment": name, "candidate": "qsd"}, {"ratio": value})
        for name, value in (("a", 1.0), ("b", 1.2), ("c", 0.9))
    ]
    results = {"training": Result("training", HEADER, rows)}
    assert verdict(results, "Training step in JAX").value == 1.2


def test_every_bar_asks_for_a_row_of_a_suite_once():
    asked = [(bar.suite, bar.value, tuple(bar.what.items())) for bar in bars.BARS]
    assert len(set(asked)) == len(asked)
    assert {bar.suite for bar in bars.BARS} <= set(page.SUITES)


def test_ratios_whose_runs_disagree_are_marked_and_counted():
    assert ratio(row(0.5, spread=0.11)) == "0.50 \\*"
    assert ratio(row(0.5, spread=0.09)) == "0.50"
    steady, wide = row(0.5), row(0.6, spread=0.2, size=layers.SMALL)
    baseline = row(1.0, spread=0.0, candidate=layers.DROPOUT)
    unseen = row(0.05, spread=0.2, group="dtypes", dtype="float16", candidate=layers.MULTIPLY)
    assert bars.unsteady(torch(steady, wide, baseline, unseen)) == (1, 2)


def test_the_page_shows_the_figures_the_commands_and_why_a_bar_is_missed(tmp_path):
    folder = tmp_path / "benchmarks"
    growth = [
        row(0.5, size=size, candidate=name)
        for size in (2**8, 2**10)
        for name in (layers.DROPOUT, layers.QSD, layers.MULTIPLY)
    ]
    gammas = row(0.031, group="slow", candidate=layers.GAMMAS, size=2**8, baseline=layers.QSD)
    torch(*growth, row(0.77), gammas)["torch"].write(folder)
    written = page.write(folder)
    text = written.read_text()
    assert written == tmp_path / "benchmarks.md"
    assert "| ns per element | 2⁸ | 2¹⁰ | 2²² |" in text
    assert "| QSD | 4.00 | 4.00 | 4.00 |" in text
    assert "| QSD | 0.50 | 0.50 | 0.77 |" in text
    assert "| the paper's two gammas | 0.031 |" in text
    assert "`nox -s bench -- torch` (2 runs of 3 processes, 60 s)" in text
    assert "≤ 0.5 | 0.770 | 1% | **missed** | `nox -s bench -- torch` |" in text
    assert re.search(r"- \*\*PyTorch, eager, 1024 × 4096.*Next step: ", text, re.DOTALL)
    assert "a processor, 2 of 2 cores" in text
    assert "mean nothing" not in text
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (tmp_path / target).exists(), target


def test_a_quick_page_says_so():
    header = HEADER | {"quick": True}
    assert "mean nothing" in page.text({"torch": Result("torch", header, [row(0.5)])}, "x")


def test_no_results_are_an_error(tmp_path):
    with pytest.raises(SystemExit, match="python -m benchmarks run"):
        page.write(tmp_path / "empty")


def test_the_table_goes_between_the_markers_of_the_readme(tmp_path):
    rows = [row(0.41), row(1.1, size=layers.SMALL), row(0.6, group="default")]
    torch(*rows)["torch"].write(tmp_path)
    steps = [
        Row({"framework": "jax", "experiment": name, "candidate": "qsd"}, {"ratio": value})
        for name, value in (("a", 1.0), ("b", 1.2), ("c", 0.9))
    ]
    Result("training", HEADER, steps).write(tmp_path)
    made = readme.table(tmp_path)
    line = "| PyTorch, eager | 0.60 | not measured | 0.41 | 1.10 | `nox -s bench -- torch` |"
    assert line in made
    assert "| JAX | 0.90 | 1.20 | `nox -s bench -- training` |" in made
    text = (ROOT / "README.md").read_text()
    once = readme.put(text, made)
    assert made in once
    assert readme.put(once, made) == once
    with pytest.raises(ValueError, match=r"README.md: expected"):
        readme.put("no markers", made)


@pytest.mark.skipif(not RESULTS.exists(), reason="nothing has been measured yet")
def test_page_and_readme_are_those_of_the_results():
    assert (ROOT / "docs" / "benchmarks.md").read_text() == page.text(
        page.load(RESULTS), "benchmarks"
    )
    text = (ROOT / "README.md").read_text()
    assert readme.put(text, readme.table(RESULTS)) == text


def test_the_header_names_no_one():
    text = str(machine.describe(1, "cpu"))
    assert platform.node() not in text
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


def test_a_processor_alone_sees_no_gpu_and_a_gpu_is_named(tmp_path, monkeypatch):
    assert machine.environment(1, "kept", "cpu")["CUDA_VISIBLE_DEVICES"] == "-1"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    assert not {"CUDA_VISIBLE_DEVICES", "JAX_PLATFORMS"} & set(
        machine.environment(1, "kept", "gpu")
    )
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho A card\necho Another\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert machine.describe(1, "gpu")["device"] == "A card"
    assert machine.describe(1, "cpu")["device"] == "CPU"


def test_more_threads_than_cores_are_refused():
    with pytest.raises(SystemExit, match="--threads: expected at most"):
        machine.pin(10**6)


# --- the measures themselves ----------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [1e-3, 1.0, 1e3])
def test_the_right_law_is_close_and_others_are_not(alpha):
    law, n = quantal.Dilution(0.2, alpha), 2**14
    c = law.sample(n, np.random.default_rng(1)).astype(np.float32)
    limit = floor(n, 1, alarm=1e-6)
    assert distance(c, law) < limit
    # Another rate: of 0 there is too much.
    other = quantal.Dilution(0.25, alpha).sample(n, np.random.default_rng(1))
    assert distance(other, law) > limit
    # NaN is missing everywhere.
    assert distance(np.where(np.arange(n) % 10 == 0, np.nan, c), law) == pytest.approx(
        0.1, abs=limit
    )
    assert distance(np.full(n, np.nan), law) == 1


def test_a_distance_is_the_largest_difference_on_either_side():
    law = quantal.Dilution(0.5, np.inf)  # 0 or 2, evenly
    assert distance(np.array([0.0, 0.0, 0.0, 2.0]), law) == 0.25
    assert distance(np.array([0.0, 2.0, 2.0, 2.0]), law) == 0.25
    for near in (1 - 1e-7, 1 + 1e-7):  # but not beyond the rounding of float32
        assert distance(np.array([0.0, 2.0 * near]), law) == 0
    assert distance(np.array([0.0, 2.1]), law) == 0.5
    assert distance(np.array([0.0, 1.9]), law) == 0.5


def touched(size):
    """Return memory from the kernel itself: what a C library returns depends on its past."""
    block = mmap.mmap(-1, size)
    np.frombuffer(block, np.uint8)[:] = 1
    return block


def test_the_c_library_counts_what_is_allocated():
    before = from_c_library()
    kept = np.ones(2**20, np.uint8)
    assert from_c_library() - before == pytest.approx(kept.nbytes, rel=0.01)


def test_the_rise_of_memory_is_that_of_what_a_call_touches():
    size = 2**26

    def call():
        more, kept = touched(size // 2), touched(size)
        more.close()
        return kept

    assert rise(call) == pytest.approx(1.5 * size, rel=0.05)


def test_shapes_have_so_many_elements():
    for size in layers.SIZES:
        assert np.prod(layers.shape(size)) == size
        assert np.prod(layers.shape(size, maps=True)) == size
