"""One run on 8 devices: the costs of one device, with the same batches and portable keys."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

# In a process of its own: the number of devices of a CPU is fixed when JAX starts.
SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from jax_runs import small_run, trained
from examples.with_jax.train import Trainer
from examples.with_jax.devices import at_work

out, data = Path(sys.argv[1]), Path(sys.argv[2])
found = {}
for name in sys.argv[3:]:
    for devices in (1, 8):
        run = small_run(
            name, out / str(devices), data, devices=devices, stream="portable",
            precision="float64", epochs=1, limit=1000 if name == "ptb-medium" else 80,
        )
        run.experiment = replace(run.experiment, batch=16)
        run.finish = lambda *_: None
        trained(run)
        with at_work(run) as place:
            trainer = Trainer(run, place)
            found[f"{name}/{devices}"] = {
                "costs": run.watch.costs,
                "metrics": run.metrics,
                "compiled": trainer.steps.train._cache_size(),
                "spread": len(place.divided(next(run.batches(0))).x.sharding.device_set),
            }
print(json.dumps(found))
"""
NAMES = ("mnist-mlp", "cifar10-wrn", "ptb-medium", "reviews-gru")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, data_folder: Path) -> dict:
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path(__file__).parent)]),
    }
    out = tmp_path_factory.mktemp("sharded")
    command = [sys.executable, "-c", SCRIPT, str(out), str(data_folder), *NAMES]
    ended = subprocess.run(
        command, check=True, timeout=500, env=environment, stdout=subprocess.PIPE, text=True
    )
    return json.loads(ended.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_same_costs_as_on_one_device(name: str, found: dict) -> None:
    one, eight = found[f"{name}/1"], found[f"{name}/8"]
    assert (one["spread"], eight["spread"]) == (1, 8)
    assert len(one["costs"]) > 2
    np.testing.assert_allclose(eight["costs"], one["costs"], rtol=1e-9)
    for expected, line in zip(one["metrics"], eight["metrics"], strict=True):
        assert line == pytest.approx(expected, rel=1e-9, nan_ok=True)
    assert eight["compiled"] - one["compiled"] == 1  # the arrays stay where they are
