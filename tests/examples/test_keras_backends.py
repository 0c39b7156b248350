"""Keras on its other backends, and on many devices: the costs of the steps stay the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

# Prints the costs of the steps and the metrics of one or more runs, whose settings are given.
SCRIPT = """
import importlib, json, sys
from pathlib import Path
from keras_runs import Costs, narrow_run, rate
from examples.with_keras.train import train

# 8 devices divide 352, and not the 1 that is left.
importlib.import_module("examples.data.batches").EVALUATION_BATCH = 352
for name, settings in json.loads(sys.argv[3]):
    run = narrow_run(name, Path(sys.argv[1]) / str(settings), Path(sys.argv[2]), watch=Costs(),
                     stream="portable", **settings)
    # Calmly: a learning rate at which costs leap also makes roundings grow from step to step.
    rate(run, run.experiment.optimiser.rate / 5, run.experiment.schedule)
    with run:
        train(run)
    print(json.dumps({"costs": run.watch.costs.tolist(), "metrics": run.metrics}))
"""
DIGITS: dict[str, int] = {"epochs": 1, "limit": 353}
SMALL: list[tuple[str, dict]] = [
    ("digits-mlp", DIGITS | {"epochs": 2}),
    ("ptb-medium", {"epochs": 1, "limit": 1000}),
]
# With JAX also on devices; a process is told once how many there are.
SHARED = [("digits-mlp", DIGITS | {"devices": devices}) for devices in (1, 8)]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> Callable:
    @cache
    def on(backend: str) -> list[dict]:
        pytest.importorskip(backend)
        runs = SMALL + SHARED * (backend == "jax")
        out = tmp_path_factory.mktemp(backend)
        command = [sys.executable, "-c", SCRIPT, str(out), str(data_folder), json.dumps(runs)]
        environment = {
            "KERAS_BACKEND": backend,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        }
        ended = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]

    return on


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_every_backend_gives_the_same_costs(backend: str, ran: Callable) -> None:
    for one, expected in zip(ran(backend)[: len(SMALL)], ran("tensorflow"), strict=True):
        np.testing.assert_allclose(one["costs"], expected["costs"], rtol=2e-5)
        np.testing.assert_allclose(
            list(one["metrics"][-1].values()), list(expected["metrics"][-1].values()), rtol=2e-5
        )


def test_eight_devices_give_the_costs_of_one(ran: Callable) -> None:
    one, eight = ran("jax")[len(SMALL) :]
    np.testing.assert_allclose(eight["costs"], one["costs"], rtol=2e-5)
    np.testing.assert_allclose(
        list(eight["metrics"][-1].values()), list(one["metrics"][-1].values()), rtol=1e-4
    )
