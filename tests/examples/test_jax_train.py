"""Training in JAX: it learns, and goes on after a kill as if unbroken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import tiny_language
from jax_runs import fewer_pixels, small_run, trained
from small_runs import Costs, constant_rate, same_measurements

from examples.experiments import EXPERIMENTS, LAYERS, Schedule, experiment
from examples.run import Run
from examples.with_jax import feed
from examples.with_jax.devices import at_work
from examples.with_jax.train import Trainer, train

# Epochs, and what is to be left of the first cost.
SHORT = {
    "digits-mlp": (2, 0.4),
    "mnist-mlp": (5, 0.4),
    "mnist-lenet5": (6, 0.3),
    "cifar10-wrn": (6, 0.6),
    "ptb-medium": (12, 0.6),
    "ptb-large": (12, 0.6),
    "reviews-lstm": (16, 0.6),
    "reviews-gru": (16, 0.6),
}


@pytest.fixture(autouse=True, scope="module")
def quick_compilation() -> Iterator[None]:
    """Most of the time would go into compiling well what is run a few times."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_learns(name: str, tmp_path: Path, data_folder: Path) -> None:
    epochs, left = SHORT[name]
    run = trained(small_run(name, tmp_path, data_folder, epochs=epochs))
    assert len(run.metrics) == run.epochs
    assert len(run.watch.costs) == run.epochs * run.steps
    last = run.watch.costs[-run.steps :]
    assert np.mean(last) < left * run.watch.costs[0]
    assert run.metrics[-1]["train_cost"] == pytest.approx(np.mean(last), rel=1e-5)
    kind = {"perplexity": "perplexity"}.get(run.experiment.error, "error")
    assert np.isfinite(run.result["score"][f"test_{kind}"])


def first_costs(run: Run, steps: int = 1) -> list[float]:
    """The costs of the first steps, before any learning shows in them if there is but one."""
    with at_work(run) as place:
        trainer = Trainer(run, place)
        state, keys, rate = trainer.begin(trainer.start(), 0)
        portions = trainer.feed.portions(islice(run.batches(0), steps))
        trainer.go(state, portions, keys, rate, 0)
    return run.watch.costs


def test_every_layer_gives_numbers_of_its_own(tmp_path: Path) -> None:
    conditions = [(layer, "native") for layer in LAYERS]
    conditions += [(layer, "portable") for layer in ("none", "dropout", "dist-p")]
    costs = {
        (layer, stream): first_costs(small_run("digits-mlp", tmp_path, layer=layer, stream=stream))[
            0
        ]
        for layer, stream in conditions
    }
    # Without a layer the stream does not matter, and Dist. p is dropout, unit by unit.
    assert costs["none", "native"] == costs["none", "portable"]
    assert costs["dist-p", "portable"] == costs["dropout", "portable"]
    assert len(set(costs.values())) == 6


@pytest.mark.parametrize("name", ["cifar10-wrn", "reviews-gru"])
def test_precision(name: str, tmp_path: Path, data_folder: Path) -> None:
    def cost(precision: str) -> float:
        options = {"precision": precision, "stream": "portable"}
        return first_costs(small_run(name, tmp_path, data_folder, **options))[0]

    exact = cost("float64")
    # The rounding of a product; sums average most of it away.
    assert cost("float32") == pytest.approx(exact, rel=4 * 2**-24)
    rounded = cost("bfloat16")
    assert rounded == pytest.approx(exact, rel=4 * 2**-9)
    assert rounded != pytest.approx(exact, rel=1e-6)
    assert not jax.config.jax_enable_x64


def test_masks_change_with_step_and_seed_but_not_with_the_run(tmp_path: Path) -> None:
    def costs(seed: int) -> list[float]:
        run = small_run("digits-mlp", tmp_path, seed=seed)
        constant_rate(run, 0.0)
        batch = next(run.batches(0))
        run.batches = lambda epoch: iter([batch] * 3)  # type: ignore[method-assign]
        return first_costs(run, 3)

    assert costs(0) == costs(0)
    assert len({*costs(0), *costs(1)}) == 6


def test_one_compilation_for_all_learning_rates(tmp_path: Path) -> None:
    run = small_run("digits-mlp", tmp_path, limit=128, epochs=3, rate=0.21)
    run.experiment = replace(run.experiment, schedule=Schedule(factor=0.5, steps=(1, 2)))
    with run, at_work(run) as place:
        steps = Trainer(run, place).steps
        before = [step._cache_size() for step in steps[:2]]
        train(run)
        assert [step._cache_size() for step in steps[:2]] == [n + 1 for n in before]
    assert [line["learning_rate"] for line in run.metrics] == [0.05, 0.025, 0.0125]


# --- a run that breaks off ---------------------------------------------------------------------


class Break(Exception):
    pass


def stop(*_: object) -> None:
    raise Break


class Breaks(Costs):
    """Stops a run in its second epoch."""

    def step(self, epoch: int, step: int, cost: Any) -> None:
        super().step(epoch, step, cost)
        if (epoch, step) == (1, 1):
            raise Break


@pytest.mark.parametrize(
    "name", ["mnist-mlp", "mnist-lenet5", "cifar10-wrn", "ptb-medium", "reviews-lstm"]
)
@pytest.mark.parametrize("stream", ["native", "portable"])
def test_a_broken_run_goes_on(name: str, stream: str, tmp_path: Path, data_folder: Path) -> None:
    whole = trained(small_run(name, tmp_path / "whole", data_folder, stream=stream))
    broken = small_run(name, tmp_path / "broken", data_folder, stream=stream)
    broken.watch = Breaks()
    with pytest.raises(Break):
        trained(broken)
    again = small_run(name, tmp_path / "broken", data_folder, stream=stream)
    assert again.first_epoch == 1
    trained(again)
    assert again.metrics == whole.metrics
    assert again.result == whole.result
    assert again.watch.costs == whole.watch.costs[whole.steps :]


KILLED = """
import os, signal, sys
from pathlib import Path
from jax_runs import fewer_pixels, small_run, trained

run = small_run("digits-mlp", Path(sys.argv[1]), limit=320)
run.watch.step = lambda epoch, step, cost: epoch and os.kill(os.getpid(), signal.SIGKILL)
trained(run)
"""


def test_a_killed_process_goes_on(tmp_path: Path) -> None:
    path = os.pathsep.join([*sys.path, str(Path(__file__).parent)])
    environment = os.environ | {"PYTHONPATH": path, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    command = [sys.executable, "-c", KILLED, str(tmp_path / "killed")]
    ended = subprocess.run(command, check=False, timeout=240, env=environment)
    assert ended.returncode == -signal.SIGKILL
    again = small_run("digits-mlp", tmp_path / "killed", limit=320)
    assert again.first_epoch == 1
    trained(again)
    whole = trained(small_run("digits-mlp", tmp_path / "whole", limit=320))
    assert again.metrics == whole.metrics
    assert again.result == whole.result


def test_measurements_are_the_same_after_a_stop_before_them(tmp_path: Path) -> None:
    whole = trained(small_run("digits-mlp", tmp_path / "whole", limit=128))
    broken = small_run("digits-mlp", tmp_path / "broken", limit=128)
    broken.finish = stop  # type: ignore[method-assign]
    with pytest.raises(Break):
        trained(broken)
    again = small_run("digits-mlp", tmp_path / "broken", limit=128)
    assert again.first_epoch == again.epochs
    same_measurements(trained(again), whole)


LIMITS = {"cifar10-wrn": 32, "ptb-medium": 1000}


@pytest.mark.parametrize("name", ["mnist-mlp", "cifar10-wrn", "ptb-medium", "reviews-gru"])
def test_steps_in_one_call_are_those_of_many_calls(
    name: str, tmp_path: Path, data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def costs(length: int) -> list[float]:
        monkeypatch.setitem(feed._TOGETHER_ON_CPU, experiment(name).model, length)
        options = {"limit": LIMITS.get(name, 160), "precision": "float64"}
        run = small_run(name, tmp_path / str(length), data_folder, **options)
        if name == "cifar10-wrn":  # XLA's convolutions on a CPU are very slow within a loop
            run._data = fewer_pixels(run.data, 2)
            run.experiment = replace(run.experiment, batch=8)
        run.finish = lambda *_: None  # type: ignore[method-assign]
        return trained(run).watch.costs

    one_by_one = costs(1)
    assert len(one_by_one) > 3
    assert len(one_by_one) // 2 % 3  # there is a rest
    np.testing.assert_allclose(costs(3), one_by_one, rtol=1e-9)
    assert len(set(one_by_one)) == len(one_by_one)


def test_sparse_measurements_see_the_masks(tmp_path: Path) -> None:
    run = trained(small_run("digits-mlp", tmp_path, limit=128, epochs=1, rate=0.5))
    with at_work(run) as place:
        trainer = Trainer(run, place)
        outputs = trainer.outputs(trainer.start())
        x = run.data.test.x[:50]
        off, on, again = (next(outputs([x], masks)) for masks in (False, True, True))
    assert [site.shape for site in off] == [(50, 128), (50, 256), (50, 512)]
    active = off[0] > 0
    assert (on[0][active] == 0).mean() == pytest.approx(0.5, abs=0.05)
    assert (on[0] != again[0]).any()


@pytest.mark.parametrize("clip", [100.0, 0.1])
def test_the_first_update_of_a_language_model(clip: float, tmp_path: Path) -> None:
    tiny_language.check(tiny_language.tiny_run("jax", tmp_path, clip), train)
