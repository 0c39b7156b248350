"""Training in PyTorch: it learns, at every precision, and goes on after a kill as if unbroken."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_language
import torch
from small_runs import Costs, constant_rate, narrow_run

from examples import initial
from examples.experiments import LAYERS
from examples.run import Run
from examples.with_torch import weights
from examples.with_torch.parallel import Team
from examples.with_torch.train import Training, train

CPU = Team(torch.device("cpu"))
# Epochs, a learning rate for so few steps where the paper's is for many, and what is to be
# left of the first cost.
SHORT: dict[str, tuple[int, float | None, float]] = {
    "digits-mlp": (2, None, 0.4),
    "mnist-mlp": (5, None, 0.4),
    "mnist-lenet5": (6, None, 0.2),
    "cifar10-wrn": (6, None, 0.6),
    "ptb-medium": (12, 1.0, 0.6),
    "ptb-large": (12, 1.0, 0.6),
    "reviews-lstm": (16, 0.02, 0.6),
    "reviews-gru": (16, 0.02, 0.6),
}


def short_run(name: str, out: Path, data: Path, **options: Any) -> Run:
    epochs, rate, _ = SHORT[name]
    run = narrow_run(name, out, data, **{"epochs": epochs} | options)
    if rate is not None:
        constant_rate(run, rate)
    return run


def trained(run: Run) -> Run:
    with run:
        train(run)
    return run


@pytest.mark.parametrize("name", SHORT)
def test_every_experiment_learns(name: str, tmp_path: Path, data_folder: Path) -> None:
    run = short_run(name, tmp_path, data_folder)
    if run.experiment.model == "language":  # more steps, and enough units to tell words apart
        sizes = run.experiment.sizes | {"units": 128, "steps": 10}
        run.experiment = replace(run.experiment, sizes=sizes)
    elif run.experiment.model == "reviews":
        run.experiment = replace(run.experiment, batch=64)
    trained(run)
    assert len(run.metrics) == run.epochs
    assert len(run.watch.costs) == run.epochs * run.steps
    last = run.watch.costs[-run.steps :]
    assert np.mean(last) < SHORT[name][2] * run.watch.costs[0]
    assert run.metrics[-1]["train_cost"] == pytest.approx(np.mean(last), rel=1e-6)
    assert run.result["score"]["test_cost"] > 0
    kind = {"perplexity": "perplexity", "rmse": "error"}.get(run.experiment.error, "error")
    assert f"test_{kind}" in run.result["score"]


def test_every_layer_gives_numbers_of_its_own(tmp_path: Path) -> None:
    scores = {
        (layer, stream): trained(
            narrow_run("digits-mlp", tmp_path / stream, layer=layer, stream=stream, epochs=1)
        ).result["score"]["test_cost"]
        for layer in LAYERS
        for stream in ("native", "portable")
    }
    # Without a layer the stream does not matter, and Dist. p is dropout, unit by unit.
    assert scores["none", "native"] == scores["none", "portable"]
    assert scores["dist-p", "portable"] == scores["dropout", "portable"]
    assert len(set(scores.values())) == 8


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-wrn", "ptb-medium", "reviews-gru"])
def test_precision(name: str, precision: str, tmp_path: Path, data_folder: Path) -> None:
    def first_cost(precision: str, product: torch.dtype, weight: torch.dtype) -> float:
        run = short_run(name, tmp_path, data_folder, precision=precision, stream="portable")
        training = Training(run, CPU)
        kinds = set()
        for module in training.model.modules():
            if isinstance(module, torch.nn.Linear | torch.nn.Conv2d):
                module.register_forward_hook(lambda *call: kinds.add(call[-1].dtype))
        cost, _ = training.step(*map(training.tensor, next(iter(run.batches(0)))), None)
        assert kinds == {product}
        assert {parameter.dtype for parameter in training.model.parameters()} == {weight}
        assert all(parameter.isfinite().all() for parameter in training.model.parameters())
        return float(cost)

    exact = first_cost("float64", torch.float64, torch.float64)
    rounding = {"float32": 2**-24, "bfloat16": 2**-9}[precision]
    close = first_cost(precision, getattr(torch, precision), torch.float32)
    assert close == pytest.approx(exact, rel=16 * rounding)  # one in each of 16 layers


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_run_starts_with_the_weights_of_its_seed(precision: str, tmp_path: Path) -> None:
    run = narrow_run("digits-mlp", tmp_path, seed=3, precision=precision)
    start = weights.dump(Training(run, CPU).model)
    for name, array in initial.weights(run.experiment, 3).items():
        np.testing.assert_array_equal(start[name], array.astype(precision))


def test_costs_differ_by_epoch_and_seed_but_not_by_run(tmp_path: Path) -> None:
    def costs(place: str, seed: int) -> list[float]:
        run = narrow_run("digits-mlp", tmp_path / place, seed=seed, epochs=1, limit=128)
        run.experiment = replace(
            run.experiment, optimiser=replace(run.experiment.optimiser, rate=0)
        )
        training = Training(run, CPU)
        training.epoch(0)
        training.epoch(1)
        return run.watch.costs

    first = costs("a", 0)
    assert costs("b", 0) == first
    assert len({*first, *costs("c", 1)}) == 2 * len(first)


# --- the optimiser -----------------------------------------------------------------------------


def test_gradients_are_clipped_as_a_whole(tmp_path: Path, data_folder: Path) -> None:
    run = short_run("ptb-medium", tmp_path, data_folder)
    run.experiment = replace(
        run.experiment, optimiser=replace(run.experiment.optimiser, rate=1.0, clip=1e-3)
    )
    training = Training(run, CPU)
    before = [weight.detach().clone() for weight in training.model.parameters()]
    training.step(*map(training.tensor, next(iter(run.batches(0)))), None)
    after = training.model.parameters()
    moved = torch.stack([(a - b).norm() for a, b in zip(after, before, strict=True)]).norm()
    assert float(moved.detach()) == pytest.approx(1e-3, rel=0.01)


def test_the_rate_follows_the_schedule(tmp_path: Path) -> None:
    run = narrow_run("digits-mlp", tmp_path, limit=64)
    training = Training(run, CPU)
    rates = []
    for epoch in (0, 23, 24, 36):
        training.epoch(epoch)
        rates.append(training.optimiser.param_groups[0]["lr"])
    assert rates == pytest.approx([0.05, 0.05, 0.01, 0.0004])


def test_an_lstm_has_one_bias(tmp_path: Path, data_folder: Path) -> None:
    run = short_run("reviews-lstm", tmp_path, data_folder, epochs=1)
    training = Training(run, CPU)
    training.epoch(0)
    assert not training.model.rnn.bias_hh_l0.any()
    assert training.model.rnn.bias_ih_l0.any()


def test_state_is_carried_through_an_epoch_and_no_further(
    tmp_path: Path, data_folder: Path
) -> None:
    run = short_run("ptb-medium", tmp_path, data_folder, layer="none")
    run.experiment = replace(run.experiment, optimiser=replace(run.experiment.optimiser, rate=0))
    training = Training(run, CPU)
    training.epoch(0)
    training.epoch(1)
    carried = run.watch.costs
    assert carried[: run.steps] == carried[run.steps :]
    alone = [
        float(training.step(*map(training.tensor, batch), None)[0]) for batch in run.batches(0)
    ]
    assert alone[0] == carried[0]
    assert all(a != b for a, b in zip(alone[1:], carried[1:], strict=False))


# --- outputs of the sites ----------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["none", "dropout", "qsd"])
@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-wrn", "ptb-medium", "reviews-lstm"])
def test_outputs_of_the_sites(name: str, layer: str, tmp_path: Path, data_folder: Path) -> None:
    options = {} if layer == "none" else {"rate": 0.5}
    run = short_run(name, tmp_path, data_folder, layer=layer, **options)
    training = Training(run, CPU)
    before = {name: value.clone() for name, value in training.model.state_dict().items()}
    x = next(iter(run.evaluation("test"))).x[:4]
    off, again, on = (next(training.site_outputs([x], masks)) for masks in (False, False, True))
    assert len(off) == len(run.experiment.measured)
    for a, b, c in list(zip(off, again, on, strict=True))[: len(run.experiment.sites)]:
        np.testing.assert_array_equal(a, b)
        assert a.shape == c.shape
        zeros = np.mean(c[a != 0] == 0)
        assert (zeros == 0) if layer == "none" else (0.2 < zeros < 0.9)
    # Nothing of the model has moved, BatchNorm's statistics included.
    after = training.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


# --- resuming ----------------------------------------------------------------------------------


class Stop(Costs):
    """Stops a run at a step."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def step(self, epoch: int, step: int, cost: Any) -> None:
        super().step(epoch, step, cost)
        if len(self.costs) == self.steps:
            raise KeyboardInterrupt


def files(run: Run) -> dict[str, Any]:
    sparse = np.load(run.folder / "sparse.npz")
    state = torch.load(run.checkpoint, weights_only=True)["model"]
    return {
        "metrics": (run.folder / "metrics.jsonl").read_text(),
        "result": run.result,
        "sparse": {name: sparse[name].tolist() for name in sparse},
        "state": {name: value.tolist() for name, value in state.items()},
    }


@pytest.mark.parametrize("stream", ["native", "portable"])
@pytest.mark.parametrize("name", ["mnist-lenet5", "cifar10-wrn", "ptb-medium", "reviews-lstm"])
def test_a_stopped_run_goes_on_to_the_same_numbers(
    name: str, stream: str, tmp_path: Path, data_folder: Path
) -> None:
    options = {"epochs": 3, "stream": stream}
    unbroken = trained(short_run(name, tmp_path / "unbroken", data_folder, **options))
    for steps in (1, unbroken.steps + 1):  # in the first epoch, then in the second
        broken = short_run(name, tmp_path / "broken", data_folder, **options)
        broken.watch = Stop(steps)
        with pytest.raises(KeyboardInterrupt):
            trained(broken)
    assert broken.first_epoch == 1
    assert files(trained(short_run(name, tmp_path / "broken", data_folder, **options))) == files(
        unbroken
    )


KILLED = """
import os, signal, sys
from pathlib import Path
import examples.run
from examples.progress import Watch
from examples.settings import Settings

class Killed(Watch):
    def step(self, epoch, step, cost):
        if (epoch, step) == (1, 2):
            os.kill(os.getpid(), signal.SIGKILL)

settings = Settings("digits-mlp", "torch", epochs=3, limit=256, device="cpu")
examples.run.train(settings, Path(sys.argv[1]), watch=Killed())
"""


def test_a_killed_run_goes_on_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(place: str) -> Run:
        return narrow_run("digits-mlp", tmp_path / place, epochs=3, limit=256)

    command = [sys.executable, "-W", "error", "-c", KILLED, str(tmp_path / "broken")]
    assert subprocess.run(command, timeout=120).returncode == -signal.SIGKILL
    assert run("broken").first_epoch == 1

    def half_saved(state: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", half_saved)
        with pytest.raises(KeyboardInterrupt):
            trained(run("broken"))
    assert len(run("broken").metrics) == 2
    assert run("broken").first_epoch == 1
    assert files(trained(run("broken"))) == files(trained(run("unbroken")))


# --- devices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [0, 1])
def test_a_missing_gpu_is_an_error(
    found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
    monkeypatch.setenv("LOCAL_RANK", str(found))
    expected = ("auto or cpu, since torch finds no GPU", "cpu, since torch finds 1 GPUs")[found]
    with pytest.raises(ValueError, match=f"device: expected {expected}.*Received: device='gpu'"):
        trained(narrow_run("digits-mlp", tmp_path, device="gpu"))


def test_auto_is_the_cpu_where_there_is_no_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    run = narrow_run("digits-mlp", tmp_path, device="auto", epochs=1, limit=64)
    assert trained(run).result["epochs"] == 1


# --- the cost of a text ------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [100.0, 0.1])
def test_the_first_update_of_a_language_model(clip: float, tmp_path: Path) -> None:
    tiny_language.check(tiny_language.tiny_run("torch", tmp_path, clip), train)
