"""The command line, and what it shows while a run goes."""

import io
import re
import sys
from math import exp, nan
from types import SimpleNamespace

import pytest
from rich.console import Console

from examples.__main__ import main
from examples.experiments import EXPERIMENTS
from examples.progress import Lines, Live, Watch
from examples.run import Run, train, train_together
from examples.settings import Settings


def test_list_shows_every_experiment_with_the_paper_s_numbers(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in EXPERIMENTS)
    assert "61,706 parameters" in out
    assert "paper: qsd at rate 0.2, alpha 0.2: test cost 0.061" in out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["run", "mnist"], "experiment: expected one of mnist-mlp"),
        (["run", "digits-mlp", "--backend", "mxnet"], "backend: expected one of torch, keras, jax"),
        (["run", "digits-mlp", "--layer", "drop"], "layer: expected one of none, dropout"),
        (["run", "digits-mlp", "--rate", "2"], "rate: expected"),
        (["run", "digits-mlp", "--layer", "dropout", "--alpha", "1"], "layer dropout has no alpha"),
        (["run", "digits-mlp", "--vmap-seeds"], "vmap_seeds: expected backend jax"),
        (["sweep", "digits-mlp", "--vmap-seeds"], "vmap_seeds: expected backend jax alone"),
        (["run", "mnist-mlp", "--data", "no/such/folder"], "no/such/folder"),
        (["report", "no/such/folder"], "runs: expected a folder with runs in it"),
    ],
)
def test_a_mistake_is_told_in_one_line(line, words, capsys, tmp_path):
    out = [] if line[0] == "report" else ["--out", str(tmp_path)]
    assert main([*line, *out]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.startswith("error: ")
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_a_package_that_is_absent_is_told_of_with_the_line_to_type(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "examples.progress", None)  # as where rich is absent
    assert main(["run", "digits-mlp", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.endswith("Type: pip install -r examples/requirements.txt\n")
    assert len(said.splitlines()) == 1


def test_a_run_tells_of_its_epochs_and_a_second_one_that_it_is_finished(capsys, tmp_path):
    line = ["run", "digits-mlp", "--backend", "torch", "--epochs", "2", "--out", str(tmp_path)]
    assert main(line) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["digits-mlp/torch/qsd-0.2-0.2/seed-0", "2 epochs of 22 steps"]
    assert [text[:9] for text in said[2:4]] == ["epoch 1/2", "epoch 2/2"]
    assert said[3].endswith("0:00 left")
    score = said[4].removeprefix("score  ")
    assert main(line) == 0
    again = capsys.readouterr().out.splitlines()
    assert again == ["digits-mlp/torch/qsd-0.2-0.2/seed-0", f"finished before  {score}"]


LINES = {
    "cifar10-wrn": {"train_cost": 1.234e-5, "test_cost": 1.234e-5, "test_error": 1.234e-5},
    "mnist-mlp": {"train_cost": nan, "test_cost": nan, "test_error": 0.9021},
    "ptb-medium": {
        f"{part}_{kind}": value
        for part in ("train", "valid", "test")
        for kind, value in (("cost", 1e9), ("perplexity", exp(700)))
    },
    "reviews-gru": {"train_cost": 0.5, "train_error": 0.1, "test_cost": 0.5, "test_error": 0.152},
}


def console():
    """A terminal of 80 columns; and what was written to it."""
    written = io.StringIO()
    return Console(file=written, force_terminal=True, width=80), written


@pytest.mark.parametrize("name", LINES)
def test_what_is_shown_fits_80_columns(name, capsys, tmp_path, monkeypatch):
    run = Run(Settings(name, "torch", epochs=200), tmp_path)
    monkeypatch.setattr(Run, "steps", 937)
    clock = SimpleNamespace(monotonic=iter(range(10**9)).__next__)  # a second at every look
    monkeypatch.setattr("examples.progress.time", clock)
    terminal, written = console()
    for watch in (Lines(), Live(terminal)):
        watch.start(run)
        watch._began -= 100_000  # days are left
        for epoch in (8, 198):
            watch.step(epoch, 936, 123456.789)
            watch.epoch({"epoch": epoch, "learning_rate": 0.1, **LINES[name]})
        if isinstance(watch, Live):
            watch._screen.refresh()
        watch.done({"score": LINES[name]})
        watch.again(run, {"score": LINES[name]})
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue()).replace("\r", "\n")
    lines = [*capsys.readouterr().out.split("\n"), *shown.split("\n")]
    assert any(line.startswith("epoch 199/200") and line.endswith("left") for line in lines)
    assert any("━" in line and "cost 1.2e+05" in line for line in lines)
    assert max(map(len, lines)) <= 80
    kind = next(iter(LINES[name])).split("_")[1] if name != "ptb-medium" else "perplexity"
    assert any(line.strip().startswith((kind, "error")) for line in shown.split("\n"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_that_breaks_off_gives_the_cursor_back(error, tmp_path):
    terminal, written = console()
    run = Run(Settings("digits-mlp", "torch", epochs=2), tmp_path, watch=Live(terminal))
    with pytest.raises(error), run:
        raise error
    hidden, shown = "\x1b[?25l", "\x1b[?25h"
    assert hidden in written.getvalue()
    assert written.getvalue().rindex(shown) > written.getvalue().rindex(hidden)


class Cost:
    """A cost on a device: reading it takes time."""

    def __init__(self):
        self.read = 0

    def __float__(self):
        self.read += 1
        return 1.0


@pytest.mark.parametrize(("watch", "most"), [(Watch(), 0), (Lines(), 0), (Live(), 3)])
def test_costs_are_hardly_ever_read(watch, most, tmp_path):
    run = Run(Settings("digits-mlp", "torch", epochs=100), tmp_path, watch=watch)
    cost = Cost()
    watch.start(run)
    for step in range(1000):
        run.step(step // run.steps, step % run.steps, cost)
    watch.epoch({"epoch": 0, "learning_rate": 0.1, "test_cost": 0.5})
    watch.done({"score": {"test_cost": 0.5}})
    assert cost.read <= most


class Counting(Watch):
    """Counts the epochs that it is told of."""

    def __init__(self):
        self.epochs = 0

    def epoch(self, line):
        self.epochs += 1


def test_of_seeds_trained_together_the_first_is_told_of(tmp_path):
    many = [Settings("digits-mlp", "jax", epochs=2, seed=seed) for seed in range(2)]
    watch = Counting()
    train_together(many, tmp_path, watch)
    assert watch.epochs == 2


def test_the_demo_compares_and_draws(capsys, tmp_path):
    assert main(["demo", "--seeds", "2", "--epochs", "3", "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "test cost (nats) dropout" in said
    assert "QSD α 0.2" in said
    assert re.search(r"in [0-2] of 2 pairs \(signed-rank test: P = [\d.]+\)", said)
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert len(list(tmp_path.rglob("result.json"))) == 4


def test_the_report_of_the_demo_s_runs(tmp_path, capsys):
    train(Settings("digits-mlp", "torch", epochs=1), tmp_path / "runs")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    text = (tmp_path / "report/report.md").read_text()
    assert EXPERIMENTS["digits-mlp"].title in text
