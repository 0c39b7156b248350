"""Keras on its other backends, and on many devices: the costs of the steps stay the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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


def ran(
    backend: str, out: Path, data: Path, runs: list[tuple[str, dict]], **environment: str
) -> list[dict]:
    command = [sys.executable, "-c", SCRIPT, str(out), str(data), json.dumps(runs)]
    paths = [str(Path(__file__).parent), *sys.path]
    settings = {"KERAS_BACKEND": backend, "PYTHONPATH": os.pathsep.join(paths)}
    ended = subprocess.run(
        command, env=os.environ | settings | environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


SMALL: list[tuple[str, dict]] = [
    ("digits-mlp", {"epochs": 2, "limit": 353}),
    ("ptb-medium", {"epochs": 1, "limit": 1000}),
]


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> list[dict]:
    return ran("tensorflow", tmp_path_factory.mktemp("runs"), data_folder, SMALL)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_every_backend_gives_the_same_costs(
    backend: str, tmp_path: Path, data_folder: Path, on_tensorflow: list[dict]
) -> None:
    pytest.importorskip(backend)
    found = ran(backend, tmp_path, data_folder, SMALL)
    for one, expected in zip(found, on_tensorflow, strict=True):
        np.testing.assert_allclose(one["costs"], expected["costs"], rtol=2e-5)
        np.testing.assert_allclose(
            list(one["metrics"][-1].values()), list(expected["metrics"][-1].values()), rtol=2e-5
        )


def test_eight_devices_give_the_costs_of_one(tmp_path: Path, data_folder: Path) -> None:
    pytest.importorskip("jax")
    runs = [("digits-mlp", {"epochs": 1, "devices": devices, "limit": 353}) for devices in (1, 8)]
    flags = "--xla_force_host_platform_device_count=8"
    one, eight = ran("jax", tmp_path, data_folder, runs, XLA_FLAGS=flags)
    np.testing.assert_allclose(eight["costs"], one["costs"], rtol=2e-5)
    np.testing.assert_allclose(
        list(eight["metrics"][-1].values()), list(one["metrics"][-1].values()), rtol=1e-4
    )
