"""Training in Keras: it learns, at every precision, and goes on after a kill as if unbroken."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tiny_language
from keras_runs import Costs, narrow_run, rate
from small_runs import same_measurements

from examples.experiments import LAYERS, Schedule
from examples.progress import Watch
from examples.run import Run
from examples.settings import Settings
from examples.with_keras import weights
from examples.with_keras.environment import environment
from examples.with_keras.evaluation import evaluate
from examples.with_keras.train import prepare, train

# Epochs, a learning rate for so few steps where the paper's is for many, and what is to be left
# of the first cost.
SHORT: dict[str, tuple[int, float | None, float]] = {
    "digits-mlp": (2, None, 0.4),
    "mnist-mlp": (3, None, 0.3),
    "mnist-lenet5": (3, None, 0.3),
    "cifar10-wrn": (3, None, 0.5),
    "ptb-medium": (12, None, 0.6),
    "ptb-large": (12, None, 0.6),
    "reviews-lstm": (10, 0.02, 0.6),
    "reviews-gru": (10, 0.02, 0.6),
}
ONE_OF_EACH = ("mnist-mlp", "mnist-lenet5", "cifar10-wrn", "ptb-medium", "reviews-lstm")


def trained(run: Run) -> Run:
    with run:
        train(run)
    return run


@pytest.mark.parametrize("name", SHORT)
def test_every_experiment_learns(name: str, tmp_path: Path, data_folder: Path) -> None:
    epochs, first, left = SHORT[name]
    watch = Costs()
    run = narrow_run(name, tmp_path, data_folder, watch=watch, epochs=epochs)
    if first is not None:
        rate(run, first)
    if run.experiment.model == "language":  # enough units to tell words apart
        run.experiment = replace(run.experiment, sizes=run.experiment.sizes | {"units": 128})
    trained(run)
    costs = watch.costs
    assert len(costs) == epochs * run.steps
    last = run.metrics[-1]
    assert last["train_cost"] < left * costs[0]
    # The mean that Keras keeps is that of the steps, with nothing added to their costs.
    assert last["train_cost"] == pytest.approx(costs[-run.steps :].mean(), rel=1e-5)
    assert run.result is not None


@pytest.mark.parametrize(
    ("layer", "stream"), [*((layer, "native") for layer in LAYERS), ("dropout", "portable")]
)
def test_every_layer_trains(layer: str, stream: str, tmp_path: Path, data_folder: Path) -> None:
    watch = Costs()
    settings = {"layer": layer, "stream": stream, "epochs": 1}
    run = trained(narrow_run("mnist-mlp", tmp_path, data_folder, watch=watch, **settings))
    assert run.metrics[0]["test_cost"] < 0.9 * watch.costs[0]


def test_costs_of_steps_are_not_read(tmp_path: Path, data_folder: Path) -> None:
    watch = Costs()
    trained(narrow_run("mnist-mlp", tmp_path, data_folder, watch=watch, epochs=1))
    assert all(keras.ops.is_tensor(cost) for cost in watch.given)


def test_steps_are_told_in_order(tmp_path: Path, data_folder: Path) -> None:
    seen: list[tuple[int, int]] = []

    class Steps(Watch):
        def step(self, epoch: int, step: int, cost: Any) -> None:
            seen.append((epoch, step))

    run = trained(narrow_run("mnist-mlp", tmp_path, data_folder, epochs=2, watch=Steps()))
    assert seen == [(epoch, step) for epoch in range(2) for step in range(run.steps)]


# --- resuming ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "layer", "stream"),
    [
        ("cifar10-wrn", "qsd", "native"),
        ("mnist-lenet5", "qsd", "portable"),
        ("ptb-medium", "qsd", "native"),
        ("reviews-gru", "dropout", "native"),
    ],
)
def test_broken_run_goes_on_to_the_same_numbers(
    name: str, layer: str, stream: str, tmp_path: Path, data_folder: Path
) -> None:
    def run(folder: str, watch: Costs) -> Run:
        settings = {"layer": layer, "stream": stream, "epochs": 3}
        one = narrow_run(name, tmp_path / folder, data_folder, watch=watch, **settings)
        rate(one, one.experiment.optimiser.rate, Schedule(factor=0.2, steps=(2,)))
        return one

    whole = Costs()
    unbroken = trained(run("unbroken", whole))
    for stop in (unbroken.steps + 1, 1):  # within the second epoch, then within what is left
        with pytest.raises(KeyboardInterrupt):
            trained(run("broken", Costs(stop)))
    rest = Costs()
    broken = trained(run("broken", rest))
    assert broken.metrics == unbroken.metrics
    np.testing.assert_array_equal(rest.costs, whole.costs[-len(rest.given) :])
    assert len(rest.given) == 2 * unbroken.steps
    assert broken.result == unbroken.result


KILLED = """
import os, signal, sys
from pathlib import Path
from examples.progress import Watch
from examples.run import train
from examples.settings import Settings

class Kill(Watch):
    def step(self, epoch, step, cost):
        if (epoch, step) == (1, 3):
            os.kill(os.getpid(), signal.SIGKILL)

train(Settings("digits-mlp", "keras", epochs=2, limit=640), Path(sys.argv[1]), watch=Kill())
"""


def test_killed_process_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert ended.returncode == -signal.SIGKILL

    settings = Settings("digits-mlp", "keras", epochs=2, limit=640)
    killed, whole = Run(settings, tmp_path / "killed"), Run(settings, tmp_path / "whole")
    assert killed.first_epoch == 1
    assert trained(killed).metrics == trained(whole).metrics


def test_run_killed_before_its_end_only_ends(tmp_path: Path, data_folder: Path) -> None:
    run = trained(narrow_run("mnist-mlp", tmp_path, data_folder, epochs=1))
    result = run.result
    (run.folder / "result.json").unlink()
    watch = Costs()
    again = trained(narrow_run("mnist-mlp", tmp_path, data_folder, epochs=1, watch=watch))
    assert again.result == result
    assert not watch.given


# --- evaluation --------------------------------------------------------------------------------


def test_evaluation_weighs_batches_by_their_samples(
    tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = narrow_run("mnist-mlp", tmp_path, data_folder)
    model = prepare(run)
    whole = evaluate(model, run, "test")
    module = importlib.import_module("examples.data.batches")
    monkeypatch.setattr(module, "EVALUATION_BATCH", 50)  # 50 and 14
    np.testing.assert_allclose(evaluate(model, run, "test"), whole, rtol=1e-5)
    logits = keras.ops.convert_to_numpy(model(run.data.test.x))
    assert whole[1] == pytest.approx(np.mean(logits.argmax(1) != run.data.test.y), abs=1e-6)


@pytest.mark.parametrize("clip", [100.0, 0.1])
def test_the_first_update_of_a_language_model(clip: float, tmp_path: Path) -> None:
    if keras.backend.backend() != "tensorflow":
        pytest.skip("in float64, which the other backends do not have")
    tiny_language.check(tiny_language.tiny_run("keras", tmp_path, clip), train)


def test_measurements_are_the_same_after_a_stop_before_them(
    tmp_path: Path, data_folder: Path
) -> None:
    def run(out: str) -> Run:
        return narrow_run("mnist-mlp", tmp_path / out, data_folder, epochs=1)

    whole = trained(run("whole"))
    broken = run("broken")
    broken.finish = stop  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        trained(broken)
    again = run("broken")
    assert again.first_epoch == again.epochs
    same_measurements(trained(again), whole)


def stop(*_: object) -> None:
    raise KeyboardInterrupt


# --- precision and devices ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "compute", "stored"),
    [("bfloat16", "bfloat16", "float32"), ("float64", "float64", "float64")],
)
def test_precision_holds_within_a_run_only(
    precision: str, compute: str, stored: str, tmp_path: Path, data_folder: Path
) -> None:
    before = keras.config.floatx(), keras.config.dtype_policy().name
    run = narrow_run("cifar10-wrn", tmp_path, data_folder, precision=precision, epochs=1)
    if precision == "float64" and keras.backend.backend() != "tensorflow":
        with pytest.raises(ValueError, match=r"precision: expected float32 or bfloat16"):
            trained(run)
        return
    with environment(run):
        model = prepare(run)
        assert {layer.compute_dtype for layer in model.layers} == {compute}
        assert {v.dtype for v in model.trainable_variables} == {stored}
    watch = Costs()
    run.watch = watch
    trained(run)
    assert np.isfinite(watch.costs).all()
    assert run.metrics[0]["train_cost"] < watch.costs[0]
    assert (keras.config.floatx(), keras.config.dtype_policy().name) == before


def test_missing_gpu_is_a_clear_error(tmp_path: Path, data_folder: Path) -> None:
    run = narrow_run("mnist-mlp", tmp_path, data_folder, device="gpu")
    message = r"device: expected auto or cpu, since Keras finds no GPU here. Received: device='gpu'"
    with pytest.raises(ValueError, match=message):
        trained(run)


def test_cpu_can_be_asked_for(tmp_path: Path, data_folder: Path) -> None:
    assert trained(narrow_run("mnist-mlp", tmp_path, data_folder, device="cpu", epochs=1)).result


def test_devices_need_jax(tmp_path: Path, data_folder: Path) -> None:
    if keras.backend.backend() == "jax":
        pytest.skip("about the other backends")
    run = narrow_run("mnist-mlp", tmp_path, data_folder, devices=2)
    with pytest.raises(ValueError, match=r"devices: expected 1 with Keras on .*KERAS_BACKEND=jax"):
        trained(run)


# --- compilation -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_step_compiles_with_xla(name: str, tmp_path: Path, data_folder: Path) -> None:
    if keras.backend.backend() != "tensorflow":
        pytest.skip("about TensorFlow's graphs")

    def costs(compiled: bool) -> tuple[list[float], dict[str, np.ndarray]]:
        run = narrow_run(name, tmp_path, data_folder, stream="portable")
        sizes = run.experiment.sizes
        if run.experiment.model == "reviews":  # loops that XLA can unroll in no time
            sizes = sizes | {"steps": 20}
        run.experiment = replace(run.experiment, sizes=sizes)
        model = prepare(run)
        model.jit_compile = compiled
        batch = next(run.batches(0))
        found = [float(model.train_on_batch(*batch, return_dict=True)["latest"]) for _ in range(2)]
        return found, weights.dump(model, run.experiment)

    plain, compiled = costs(False), costs(True)
    np.testing.assert_allclose(compiled[0], plain[0], rtol=1e-4)
    for part, value in plain[1].items():
        np.testing.assert_allclose(compiled[1][part], value, rtol=1e-3, atol=1e-4, err_msg=part)
