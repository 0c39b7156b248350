"""The figures: which are drawn, and that what they show is what the runs hold."""

from __future__ import annotations

import subprocess
import sys
from math import nan

import numpy as np
import pytest
from synthetic import grid, write

import quantal
from examples import figures, sparse, summaries
from examples.comparison import conditions, quartiles
from examples.figures import comparison, draw, theory
from examples.figures.paper import FIGURES, learning
from examples.figures.style import PAPER, compose, looks
from examples.records import collect
from examples.settings import Settings

ALL = {"figure-1", "figure-A1", *FIGURES}


def figure(runs, name, experiment):
    found = [c for c in conditions(collect(runs)).values() if c.settings.experiment == experiment]
    return compose(FIGURES[name][experiment](found)), found


def lines(axes):
    """The labelled lines of a panel."""
    return {line.get_label().split(" (")[0]: line for line in axes.get_lines()}


def titled(made, title):
    return [axes for axes in made.get_axes() if axes.get_title() == title]


@pytest.fixture(scope="module")
def perceptrons(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    layers = [("none", None, None), ("dropout", 0.1, None), ("dropout", 0.2, None)]
    layers += [("qsd", rate, alpha) for rate in (0.1, 0.2) for alpha in (0.2, 0.5)]
    layers += [(layer, 0.2, alpha) for layer in ("dist-p", "dist-q") for alpha in (0.2, 0.5)]
    grid("mnist-mlp", layers, runs, epochs=4)
    return runs


def test_figures_are_drawn_for_what_there_is(tmp_path):
    grid("reviews-gru", [("qsd", None, None)], tmp_path, seeds=2, epochs=2)
    written, left_out = draw(collect(tmp_path), tmp_path / "out" / "figures")
    assert {path.stem for path in written} == {"figure-1", "figure-A1", "figure-6-torch-2-epochs"}
    assert len(written) == 6
    assert {path.suffix for path in written} == {".png", ".svg"}
    for path in written:
        start = path.read_bytes()[:8]
        assert (
            start == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else start.startswith(b"<?xml")
        )
    assert left_out.keys() == {*FIGURES} - {"figure-6"}
    assert left_out["figure-5"] == "no finished runs of ptb-medium or ptb-large for it"


def test_every_figure_of_the_paper_can_be_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "save", lambda figure, *paths: None)
    for experiment in ("mnist-mlp", "mnist-lenet5", "cifar10-wrn", "ptb-medium", "ptb-large"):
        grid(experiment, [("qsd", None, None)], tmp_path / "runs", seeds=1, epochs=1)
    for experiment in ("reviews-lstm", "reviews-gru", "digits-mlp"):
        grid(experiment, [("dropout", None, None)], tmp_path / "runs", seeds=1, epochs=1)
    write(Settings("mnist-mlp", "torch", epochs=1, unit_mean=True), tmp_path / "runs")
    written, left_out = draw(collect(tmp_path / "runs"), tmp_path / "out")
    assert {"-".join(path.stem.split("-")[:2]) for path in written} == ALL
    assert left_out == {}


def test_backends_and_other_setups_have_their_own_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "save", lambda figure, *paths: None)
    base = Settings("reviews-gru", "jax", epochs=1)
    for number, change in enumerate(
        [
            {},
            {"backend": "keras"},
            {"limit": 500},
            {"precision": "bfloat16", "stream": "portable"},
            {"variant": "cited"},
        ]
    ):
        write(base.but(**change), tmp_path / str(number))
    written, _ = draw(collect(tmp_path), tmp_path / "out")
    assert {path.stem for path in written if "6" in path.stem} == {
        "figure-6-jax-1-epochs",
        f"figure-6-{base.but(backend='keras').software}-1-epochs",
        "figure-6-jax-1-epochs-limit-500",
        "figure-6-jax-1-epochs-bfloat16-portable",
        "figure-6-jax-cited-1-epochs",
    }


def test_curves_are_medians_and_bands_quartiles(perceptrons):
    made, found = figure(perceptrons, "figure-2", "mnist-mlp")
    axes = titled(made, "test cost (nats)")[0]
    drawn = lines(axes)
    shown = [c for c in found if c.layer == "none" or (c.rate == 0.2 and "dist" not in c.layer)]
    assert len(shown) == len(drawn) == len(axes.collections) == 4
    for condition, band in zip(shown, axes.collections, strict=True):
        metrics = np.array([[m["test_cost"] for m in run.metrics] for run in condition.runs])
        label = "no dropout" if condition.layer == "none" else None
        label = label or {"dropout": "dropout"}.get(condition.layer, f"QSD α {condition.alpha:g}")
        assert drawn[label].get_xdata().tolist() == [1, 2, 3, 4]
        np.testing.assert_allclose(drawn[label].get_ydata(), np.median(metrics, axis=0))
        low, high = np.quantile(metrics, (0.25, 0.75), axis=0)
        edge = band.get_paths()[0].vertices
        assert edge[:, 1].min() == pytest.approx(low.min())
        assert edge[:, 1].max() == pytest.approx(high.max())
    assert "n = 3" in axes.get_lines()[0].get_label()
    assert [a.get_title() for a in made.get_axes()[:3]] == [
        "training cost (nats)",
        "test cost (nats)",
        "test error",
    ]


def test_the_sweep_shows_scores_over_the_rate(perceptrons):
    made, found = figure(perceptrons, "figure-2", "mnist-mlp")
    axes = titled(made, "test error")[1]
    drawn = lines(axes)
    assert drawn.keys() == {"no dropout", "dropout", "QSD α 0.2", "QSD α 0.5"}
    assert drawn["no dropout"].get_xdata().tolist() == [0]
    # At rate 0 all layers are the same: one condition, without a layer, is there for all.
    assert drawn["dropout"].get_xdata().tolist() == [0, 0.1, 0.2]
    own = [c for c in found if c.layer == "none" or (c.layer == "qsd" and c.alpha == 0.5)]
    expected = [np.median([*c.scores("test_error").values()]) for c in own]
    np.testing.assert_allclose(drawn["QSD α 0.5"].get_ydata(), expected)


def test_the_ablation_has_a_panel_for_each_alpha_and_boxes(perceptrons):
    made, found = figure(perceptrons, "figure-A2", "mnist-mlp")
    for alpha in ("0.2", "0.5"):
        (axes,) = titled(made, f"test cost (nats), α {alpha}")
        names = {"dropout", f"QSD α {alpha}", f"Dist. p α {alpha}", f"Dist. q α {alpha}"}
        assert lines(axes).keys() == names
    (boxes,) = titled(made, "test cost (nats)")
    labels = [label.get_text() for label in boxes.get_xticklabels()]
    assert labels[:2] == ["dropout", "QSD α 0.2"]
    assert len(labels) == 7
    condition = next(c for c in found if c.layer == "dropout" and c.rate == 0.2)
    median = quartiles([*condition.scores("test_cost").values()])[1]
    medians = [line.get_ydata()[0] for line in boxes.get_lines() if len(set(line.get_ydata())) == 1]
    assert any(value == pytest.approx(median) for value in medians)


def test_boxes_of_the_outputs_hold_every_run(perceptrons):
    made, found = figure(perceptrons, "figure-A2", "mnist-mlp")
    spreads = titled(made, "its standard deviation")
    assert len(spreads) == len(titled(made, "mean output, over samples")) == len(sparse.VIEWS)
    condition = next(c for c in found if c.layer == "dropout" and c.rate == 0.2)
    measured = [sparse.load(run.folder) for run in condition.runs]
    for axes, view in zip(spreads, sparse.VIEWS, strict=True):
        assert [label.get_text() for label in axes.get_xticklabels()] == [
            "ReLU 1",
            "ReLU 2",
            "ReLU 3",
        ]
        expected = np.median([one[f"{view}/1/samples"].std() for one in measured])
        levels = np.array([float(y) for line in axes.get_lines() for y in line.get_ydata()])
        assert np.abs(levels / expected - 1).min() < 1e-6
        assert len(axes.patches) == 4 * 3  # conditions and sites


def test_histograms_show_one_run_of_each_condition(perceptrons):
    made, found = figure(perceptrons, "figure-3", "mnist-mlp")
    assert len(titled(made, "ReLU 3, samples")) == len(sparse.VIEWS)
    panel = titled(made, "ReLU 3, samples")[1]
    outlines = [patch for patch in panel.patches if not patch.get_fill()]
    assert [p.get_label() for p in outlines] == [
        "dropout",
        "QSD α 0.2",
        "Dist. p α 0.2",
        "Dist. q α 0.2",
    ]
    heights, edges, _ = outlines[0].get_data()
    condition = next(c for c in found if c.layer == "dropout" and c.rate == 0.2)
    values = summaries.load(condition.runs[0].folder)["masks-off/3/samples"].astype(float)
    np.testing.assert_allclose(heights, np.histogram(values, edges)[0] / len(values))
    assert heights.sum() > 0.95
    for name in ("dense 1, weights", "dense 3, biases"):
        assert len(titled(made, name)[0].patches) == 8


def test_the_papers_medians_are_marked_only_where_runs_are_like_the_papers(perceptrons, tmp_path):
    def diamonds(made):
        axes = made.get_axes()[-1]
        return [
            float(line.get_ydata()[0])
            for line in axes.get_lines()
            if line.get_marker() == "D" and len(line.get_ydata())
        ]

    grid("ptb-medium", [("dropout", None, None), ("qsd", None, None)], tmp_path, seeds=1)
    made, _ = figure(tmp_path, "figure-5", "ptb-medium")
    assert diamonds(made) == [83.5, 81.8]
    (legend,) = made.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()][-1] == PAPER
    assert diamonds(figure(perceptrons, "figure-2", "mnist-mlp")[0]) == []


def test_the_last_epochs_of_a_text_are_shown_close_up(tmp_path):
    layers = [("dropout", None, None), ("qsd", None, None)]
    for layer, end in (("dropout", np.log(83.5)), ("qsd", np.log(81.8))):
        for seed in range(2):
            write(Settings("ptb-medium", "torch", layer, seed=seed), tmp_path, end=end)
    made, _ = figure(tmp_path, "figure-5", "ptb-medium")
    whole, close = made.get_axes()[-2:]
    assert close.get_title() == "test perplexity, last epochs"
    assert lines(close)["dropout"].get_xdata().tolist() == [*range(28, 40)]
    assert len(lines(whole)["dropout"].get_xdata()) == 39

    def apart(axes):
        """How far the two are from each other at the end, as a share of the panel's height."""
        made.draw_without_rendering()
        ends = [lines(axes)[name].get_xydata()[-1] for name in ("dropout", "QSD α 5")]
        (_, one), (_, other) = axes.transAxes.inverted().transform(axes.transData.transform(ends))
        return one - other

    assert apart(close) > 0.1 > apart(whole) > 0
    assert len(layers) == len([name for name in lines(close) if "α" in name or name == "dropout"])


def test_one_epoch_is_shown_as_points_side_by_side(tmp_path):
    grid("digits-mlp", [("dropout", None, None), ("qsd", None, None)], tmp_path, epochs=1)
    made, _ = figure(tmp_path, "figure-digits", "digits-mlp")
    axes = made.get_axes()[0]
    drawn = lines(axes)
    assert {line.get_marker() for line in drawn.values()} == {"o", "s"}
    places = [float(line.get_xdata()[0]) for line in drawn.values()]
    assert len(set(places)) == 2
    assert np.mean(places) == pytest.approx(1)
    assert axes.get_xticks().tolist() == [1]
    low, high = axes.get_xlim()
    assert low < min(places) < max(places) < high


def test_what_the_paper_does_not_have_is_in_a_figure_of_its_own(tmp_path):
    base = Settings("mnist-mlp", "torch", epochs=4)
    for change in ({}, {"layer": "dropout"}, {"unit_mean": True}, {"shared_p": True}):
        write(base.but(**change), tmp_path)
    made, _ = figure(tmp_path, "figure-2", "mnist-mlp")
    assert lines(made.get_axes()[0]).keys() == {"dropout", "QSD α 0.2"}
    made, found = figure(tmp_path, "figure-open", "mnist-mlp")
    names = {"dropout", "QSD α 0.2", "QSD α 0.2, mean 1", "QSD α 0.2, shared p"}
    assert lines(made.get_axes()[0]).keys() == names
    own = looks(found)
    assert len({look.color for look in own.values()}) == 4


def test_runs_that_diverged_are_named(tmp_path):
    base = Settings("mnist-mlp", "torch", epochs=2)
    for rate in (0.2, 0.3):
        for seed, end in enumerate((0.05, nan, nan)):
            write(base.but(rate=rate, seed=seed), tmp_path, end=end)
    made, _ = figure(tmp_path, "figure-2", "mnist-mlp")
    curve = made.get_axes()[1].get_lines()[0]
    assert curve.get_label() == "QSD α 0.2 (n = 3, 2 diverged)"
    assert np.isnan(curve.get_ydata()).all()  # the median run diverged
    notes = [text.get_text() for text in made.get_axes()[-1].texts]
    assert notes == ["2 of 3 diverged"] * 2
    made, _ = figure(tmp_path, "figure-A2", "mnist-mlp")
    (legend,) = made.subfigs[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["QSD α 0.2 (2 diverged)"]


def test_all_runs_may_have_diverged(tmp_path):
    write(Settings("mnist-mlp", "torch", epochs=2), tmp_path, end=nan)
    for name in ("figure-2", "figure-3", "figure-A2"):
        made, _ = figure(tmp_path, name, "mnist-mlp")
        assert made.get_axes()
    made.draw_without_rendering()


def test_looks_can_be_told_apart(perceptrons):
    found = [c for c in conditions(collect(perceptrons)).values() if c.rate == 0.2]
    own = looks(found)
    assert len({look.color for look in own.values()}) == len(own) == 7


def test_more_alphas_than_colours_are_dashed(tmp_path):
    grid("mnist-mlp", [("qsd", None, a) for a in range(1, 9)], tmp_path, seeds=1, epochs=1)
    own = looks([*conditions(collect(tmp_path)).values()])
    assert len({(look.color, look.linestyle) for look in own.values()}) == 8


def test_the_comparison_of_the_demo(tmp_path):
    grid("digits-mlp", [("dropout", None, None), ("qsd", None, None)], tmp_path, epochs=3)
    for name in ("demo.png", "demo.svg"):
        assert comparison(tmp_path, tmp_path / name) == tmp_path / name
        assert (tmp_path / name).stat().st_size > 5_000
    made = compose(learning([*conditions(collect(tmp_path)).values()], ["test_cost"]))
    assert lines(made.get_axes()[0]).keys() == {"dropout", "QSD α 0.2"}
    with pytest.raises(ValueError, match="finished runs of mnist-mlp"):
        comparison(tmp_path, tmp_path / "x.png", experiment="mnist-mlp")


def test_the_same_runs_give_the_same_file(tmp_path):
    write(Settings("digits-mlp", "torch", epochs=2), tmp_path)
    first = comparison(tmp_path, tmp_path / "a.svg").read_bytes()
    assert comparison(tmp_path, tmp_path / "b.svg").read_bytes() == first


def test_the_law_is_drawn_as_it_is():
    half, fifth = theory.densities().get_axes()
    uniform = lines(half)["α 1"]
    np.testing.assert_allclose(uniform.get_ydata(), 1)
    # β = α/4: the density of Beta(1, 1/4).
    p = lines(fifth)["α 1"].get_xdata()
    np.testing.assert_allclose(lines(fifth)["α 1"].get_ydata(), 0.25 * (1 - p) ** -0.75)
    (axes,) = theory.mean_coefficients().get_axes()
    d, means = lines(axes)["α 0.2"].get_data()
    beta = 0.2 * d / (1 - d)
    np.testing.assert_allclose(means, 1 + beta / (0.2 * (0.2 + beta + 1)))
    assert quantal.Dilution(0.5, 0.2).mean == pytest.approx(float(np.interp(0.5, d, means)))


def test_no_global_state_of_pyplot_is_touched():
    code = "import sys, examples.figures as f; f.theory.densities(); sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
