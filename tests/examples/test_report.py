"""The report: what was found beside what the paper found, and what is missing."""

from __future__ import annotations

import csv
import re
from math import nan

import numpy as np
import pytest
import synthetic
from synthetic import grid, write

from examples import figures, sparse
from examples.comparison import conditions, qsd_of
from examples.records import collect
from examples.report import compare, report
from examples.settings import Settings

DRAW = figures.draw


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def markdown_tables(text):
    """Each table as a list of dictionaries; a row of another length than the header fails."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", text, re.M):
        header, rule, *rows = [line[2:-2].split(" | ") for line in block.splitlines()]
        assert set(rule) == {"---"}
        found.append([dict(zip(header, row, strict=True)) for row in rows])
    return found


@pytest.fixture(scope="module", autouse=True)
def no_figures():
    """Draw none: they have their own tests, and take long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda records, out: ([], {"figure-9": "for a test"}))
        yield patch


@pytest.fixture(scope="module")
def written(tmp_path_factory, no_figures):
    runs = tmp_path_factory.mktemp("runs")
    layers = [("none", None, None), ("dropout", 0.2, None), ("qsd", 0.2, 0.2), ("qsd", 0.3, 0.2)]
    grid("mnist-mlp", layers, runs, seeds=8, epochs=3)
    grid("mnist-mlp", [("dropout", 0.2, None)], runs, backend="jax", epochs=3)
    base = Settings("ptb-large", "keras", alpha=1.0, epochs=3)
    write(base.but(seed=0), runs, end=nan)
    write(base.but(seed=1), runs)
    write(base.but(seed=2), runs, epochs=1)
    path = report(runs, runs.parent / "out")
    return runs, path


def test_the_figures_are_shown(tmp_path, no_figures):
    write(Settings("reviews-gru", "jax", epochs=1), tmp_path)
    with no_figures.context() as patch:
        patch.setattr(figures, "draw", DRAW)
        path = report(tmp_path, tmp_path / "out")
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", path.read_text())
    assert len(pictures) == 3
    for picture in pictures:
        assert (path.parent / picture).exists()
        assert (path.parent / picture).with_suffix(".svg").exists()


def test_a_row_has_the_numbers_of_its_runs_and_of_the_paper(written):
    runs, path = written
    rows = read(path.parent / "results.csv")
    (row,) = [
        row
        for row in rows
        if (row["condition"], row["rate"], row["measure"]) == ("QSD α 0.2", "0.2", "test_cost")
        and row["backend"] == "torch"
    ]
    scores = [
        run.score["test_cost"]
        for run in collect(runs / "mnist-mlp" / "torch" / "qsd-0.2-0.2")
        if run.score
    ]
    assert len(scores) == 8
    assert int(row["n"]) == 8
    assert float(row["median"]) == pytest.approx(np.median(scores))
    quartiles = [float(row["lower_quartile"]), float(row["upper_quartile"])]
    assert quartiles == pytest.approx(np.quantile(scores, (0.25, 0.75)))
    assert (row["paper"], row["paper_z"]) == ("0.061", "3.36")
    assert f"{float(row['z']):.2f}" == "3.36"  # the synthetic runs do not overlap
    assert float(row["p"]) < 0.001
    assert row["matched"] == "8"
    assert row["setup"] == "3 of 100 epochs"


def test_the_tables_of_the_markdown_say_the_same(written):
    _, path = written
    cost, across, *_ = markdown_tables(path.read_text())
    rows = {(row["backend"], row["condition"], row["rate"]): row for row in cost}
    qsd = rows["torch", "QSD α 0.2", "0.2"]
    assert (qsd["n"], qsd["Z"], qsd["paper's median"], qsd["paper's Z"]) == (
        "8",
        "3.36",
        "0.061",
        "3.36",
    )
    assert qsd["unlike the paper"] == "3 of 100 epochs"
    assert rows["torch", "no dropout", "–"]["Z"] == "–"
    assert rows["torch", "QSD α 0.2", "0.3"]["Z"] == "–"  # no dropout at this rate
    assert rows["jax", "QSD α 0.2", "0.2"]["median"] == "missing"
    assert rows["torch", "Dist. p α 0.5", "0.2"]["median"] == "missing"
    assert {row["median of"]: row["jax"] for row in across}["QSD α 0.2"] == "missing"
    dropout = next(row for row in across if row["median of"] == "dropout")
    assert dropout["jax"] == rows["jax", "dropout", "0.2"]["median"]
    assert dropout["torch"] == rows["torch", "dropout", "0.2"]["median"]
    assert dropout["paper"] == "0.072"


def test_ablations_are_compared_with_qsd_at_the_same_rate_and_alpha(tmp_path):
    layers = [("dropout", 0.2, None), ("qsd", 0.3, 0.2), ("dist-p", 0.3, 0.2)]
    layers += [(name, 0.2, alpha) for name in ("qsd", "dist-p", "dist-q") for alpha in (0.2, 0.5)]
    grid("mnist-mlp", layers, tmp_path / "runs", seeds=8, epochs=1)
    for shared in ({"shared_p": True}, {"shared_p": True, "layer": "dist-p"}, {"unit_mean": True}):
        write(Settings("mnist-mlp", "torch", epochs=1, **shared), tmp_path / "runs")
    path = report(tmp_path / "runs", tmp_path / "out")
    cost = {(row["condition"], row["rate"]): row for row in markdown_tables(path.read_text())[0]}
    for alpha, papers in (("0.2", "3.36"), ("0.5", "≥ 2.94")):
        for name in ("Dist. p", "Dist. q"):
            row = cost[f"{name} α {alpha}", "0.2"]
            assert (row["Z of QSD"], row["P of QSD"]) == ("3.36", "0.00078")  # do not overlap
            assert row["paper's Z of QSD"] == papers
    assert cost["Dist. p α 0.2", "0.3"]["paper's Z of QSD"] == "–"
    assert cost["Dist. p α 0.2", "0.3"]["Z of QSD"] == "3.36"
    assert cost["QSD α 0.2", "0.2"]["Z of QSD"] == "–"
    # QSD in the same way: one run against one, or against the eight of the paper's QSD.
    found = conditions(collect(tmp_path / "runs"))
    base = Settings("mnist-mlp", "torch", epochs=1)
    shared = found[base.but(shared_p=True)]
    assert qsd_of(found[base.but(layer="dist-p", shared_p=True)], found) is shared
    assert qsd_of(shared, found) is found[base]
    assert qsd_of(found[base.but(unit_mean=True)], found) is found[base]
    assert qsd_of(found[base], found) is None
    assert cost["QSD α 0.2, mean 1", "0.2"]["Z of QSD"] != "–"


def test_the_training_cost_stands_beside_the_papers_bound(tmp_path):
    grid("mnist-mlp", [("qsd", 0.3, 0.2), ("qsd", 0.2, 0.2)], tmp_path / "runs", seeds=2, epochs=1)
    path = report(tmp_path / "runs", tmp_path / "out")
    text = path.read_text()
    table = markdown_tables(text[text.index("training cost (nats)") :])[0]
    rows = {row["rate"]: row for row in table}
    runs = collect(tmp_path / "runs" / "mnist-mlp" / "torch" / "qsd-0.3-0.2")
    assert rows["0.3"]["paper's median"] == "> 0.1"
    assert rows["0.2"]["paper's median"] == "–"
    expected = np.median([run.score["train_cost"] for run in runs])
    assert float(rows["0.3"]["median"]) == pytest.approx(expected, rel=1e-2)


def test_what_is_not_there_is_named(written):
    _, path = written
    text = path.read_text()
    where = f"ptb-large/{Settings('ptb-large', 'keras').software}/qsd-0.6-1"
    assert f"- not finished: `{where}/seed-2`, 1 of 3 epochs" in text
    assert f"- diverged: `{where}/seed-0`" in text
    assert "- missing: cifar10-wrn, no runs" in text
    assert "38 runs: 37 finished, 1 of them diverged; 1 not finished" in text
    assert "Left out: figure-9, for a test." in text


def test_a_diverged_run_is_in_the_median(written):
    _, path = written
    row, *_ = [
        row
        for table in markdown_tables(path.read_text())
        for row in table
        if row.get("condition") == "QSD α 1" and "median" in row
    ]
    assert (row["n"], row["diverged"], row["median"]) == ("2", "1", "diverged")


def test_the_change_of_the_outputs_is_relative_to_dropout(written):
    runs, path = written
    found = {}
    for layer in ("dropout-0.2", "qsd-0.2-0.2"):
        measured = [
            sparse.load(run.folder) for run in collect(runs / "mnist-mlp" / "torch" / layer)
        ]
        found[layer] = np.median([one["masks-off/3/totals"] for one in measured], axis=0)
    expected = found["qsd-0.2-0.2"] / found["dropout-0.2"] - 1
    (row,) = [
        row
        for row in read(path.parent / "sparse.csv")
        if (row["condition"], row["rate"], row["site"], row["view"])
        == ("QSD α 0.2", "0.2", "ReLU 3", "masks-off")
    ]
    for at, total in enumerate(sparse.TOTALS):
        assert float(row[total]) == pytest.approx(found["qsd-0.2-0.2"][at])
        assert float(row[f"{total}_change"]) == pytest.approx(expected[at])
    table = next(t for t in markdown_tables(path.read_text()) if "mean C" in t[0])
    (shown,) = [row for row in table if row["site"] == "ReLU 3"]
    assert shown["mean C"] == f"{expected[0]:+.0%}"
    assert shown["variance C"] == f"{expected[1]:+.0%}"
    assert shown["n"] == "8"


def test_no_change_is_given_of_a_mean_around_zero(tmp_path, monkeypatch):
    def signed(run, lower, rng):
        def outputs(inputs, masks):
            for x in inputs:
                yield [lower * np.resize([1, -1], (len(x), 8))] * len(run.experiment.measured)

        return outputs

    monkeypatch.setattr(synthetic, "_outputs", signed)
    grid("reviews-gru", [("dropout", None, None), ("qsd", None, None)], tmp_path, epochs=1)
    text = report(tmp_path, tmp_path / "out").read_text()
    table = next(t for t in markdown_tables(text) if "mean C" in t[0])
    assert {(row["mean C"], row["size C"], row["variance C"]) for row in table} == {
        ("–", "-15%", "-28%")
    }


def test_the_papers_changes_stand_beside(tmp_path):
    layers = [("dropout", None, None), ("qsd", None, None), ("qsd", None, 3.0)]
    for experiment, papers in (
        ("ptb-medium", "variance C -38%, size C -17%"),
        ("mnist-lenet5", "mean C -8%"),
    ):
        grid(experiment, layers, tmp_path / experiment, seeds=1, epochs=1)
        text = report(tmp_path / experiment, tmp_path / "out").read_text()
        table = next(t for t in markdown_tables(text) if "mean C" in t[0])
        assert [row["paper"] for row in table if row["paper"] != "–"] == [papers]
        (row,) = [row for row in table if row["paper"] == papers]
        assert row["site"] == {"ptb-medium": "LSTM 2", "mnist-lenet5": "dense 2"}[experiment]
        assert not row["condition"].endswith("3")


@pytest.mark.parametrize("state", ["finished", "diverged", "not finished"])
@pytest.mark.parametrize("layer", ["none", "dropout", "dist-q"])
def test_a_single_run_has_a_report(tmp_path, layer, state):
    run = write(
        Settings("mnist-mlp", "jax", layer=layer, epochs=2),
        tmp_path / "runs",
        end=nan if state == "diverged" else None,
        epochs=1 if state == "not finished" else None,
    )
    text = report(run.folder, tmp_path / "out").read_text()
    assert text.startswith("# Report\n\n1 runs: ")
    assert ("## Multilayer perceptron on MNIST: test cost" in text) == (state != "not finished")
    assert (f"- {state}: `{run.settings.name}`" in text) == (state != "finished")
    assert "nan" not in text


def test_an_empty_folder_is_an_error(tmp_path):
    with pytest.raises(
        ValueError, match=r"runs: expected a folder with runs in it. Received: runs="
    ):
        report(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_lines_of_the_demo(tmp_path):
    layers = [("dropout", None, None), ("qsd", None, None)]
    grid("digits-mlp", layers, tmp_path, seeds=8, epochs=3)
    lines = compare(tmp_path).splitlines()
    assert len(lines) == 6  # test cost, test error and training cost of each
    dropout, qsd = lines[:2]
    medians = [
        np.median([*condition.scores("test_cost").values()])
        for condition in conditions(collect(tmp_path)).values()
    ]
    assert f"dropout           {medians[0]:.4f} (" in dropout
    assert f"QSD α 0.2         {medians[1]:.4f} (" in qsd
    assert "Z = " not in dropout
    assert qsd.endswith("n = 8; against dropout Z = 3.36, P = 0.00078")
