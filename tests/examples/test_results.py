"""The records that are kept with the project, and what is said of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.comparison import conditions, quartiles
from examples.records import collect
from examples.report import report, write_page
from examples.words import number

ROOT = Path(__file__).parents[2]
RUNS = Path("docs/results")


@pytest.fixture(autouse=True)
def _in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_page_is_made_of_the_records(tmp_path):
    made = write_page(RUNS, tmp_path / "results.md").read_text()
    assert made.replace(str(tmp_path), "docs") == (ROOT / "docs/results.md").read_text()
    shown = {path.name for path in (ROOT / "docs/results/figures").iterdir()}
    assert {path.name for path in (tmp_path / "results/figures").iterdir()} == shown


def test_tables_and_figures_can_be_made_again(tmp_path):
    text = report(RUNS, tmp_path).read_text()
    assert "0 damaged" in text
    assert list(tmp_path.rglob("figure-2-*.png"))


def test_every_record_is_whole_and_small():
    records = collect(RUNS)
    assert records
    assert not records.damaged
    size = sum(path.stat().st_size for path in (ROOT / RUNS).rglob("*") if path.is_file())
    assert size < 20e6


def test_readme_says_what_the_records_say():
    of = {
        (c.layer, c.alpha, c.rate): c
        for c in conditions(collect(RUNS)).values()
        if c.settings.experiment == "mnist-mlp" and c.settings.backend == "jax" and c.is_papers
    }
    qsd, dropout = of["qsd", 0.2, 0.2], of["dropout", float("inf"), 0.2]
    said = " ".join((ROOT / "README.md").read_text().split())
    assert len(qsd.runs) == len(dropout.runs) == 8

    def medians(measure, *of):
        return (number(quartiles([*c.scores(measure).values()])[1]) for c in of or (qsd, dropout))

    test = qsd.against(dropout, "test_cost")
    cost = "median test cost is {} against dropout's {}".format(*medians("test_cost"))
    assert f"{cost} (Z = {test.z:.2f}, P = {test.p:.2g})." in said
    assert "test error is not lower: {} against {}.".format(*medians("test_error")) in said
    less = of["qsd", 0.2, 0.1], of["dropout", float("inf"), 0.1]
    assert [len(c.runs) for c in less] == [8, 8]
    both = "test cost {} against {}, ".format(*medians("test_cost", *less))
    both += "test error {} against {} ".format(*medians("test_error", *less))
    test = less[0].against(less[1], "test_error")
    assert f"{both}(Z = {test.z:.2f}, P = {test.p:.2g})." in said
    alone = medians("test_cost", of["dist-p", 0.2, 0.2], of["dist-q", 0.2, 0.2])
    words = "cost is {} if only the probability varies, and {} if only the size varies.".format(
        *alone
    )
    assert words in said
