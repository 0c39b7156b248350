"""The three backends give the same loss curves: what differs would be a mistake, not rounding."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from curves import PAPER

from examples.settings import BACKENDS

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def curves(data_folder: Path) -> dict:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([*sys.path, str(HERE)]),
        "KERAS_BACKEND": "tensorflow",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "OMP_NUM_THREADS": "1",
    }
    processes = {
        backend: subprocess.Popen(
            [sys.executable, HERE / "curves.py", backend, data_folder],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for backend in BACKENDS
    }
    try:
        printed = {name: process.communicate(timeout=900)[0] for name, process in processes.items()}
    finally:
        for process in processes.values():
            process.kill()
    assert [process.returncode for process in processes.values()] == [0, 0, 0]
    return {name: json.loads(text.splitlines()[-1]) for name, text in printed.items()}


@pytest.mark.parametrize("pair", list(combinations(BACKENDS, 2)), ids="-".join)
@pytest.mark.parametrize("name", PAPER)
def test_same_costs(name: str, pair: tuple[str, str], curves: dict) -> None:
    one, other = (curves[backend][name] for backend in pair)
    assert len(one["costs"]) == 20
    assert len(set(one["costs"])) == 20
    np.testing.assert_allclose(other["costs"], one["costs"], rtol=1e-6)
    # PyTorch's running variance is the unbiased one: it is seen in evaluation only.
    if name != "cifar10-wrn" or "torch" not in pair:
        np.testing.assert_allclose(other["tested"], one["tested"], rtol=1e-6)
