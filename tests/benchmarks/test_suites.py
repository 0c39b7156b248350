"""Every suite runs, in its quick form; the figures are not looked at."""

import importlib
import math
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from benchmarks import layers, page
from benchmarks.harness import Task
from benchmarks.runner import SUITES

ROOT = Path(__file__).parents[2]
BACKEND = f"keras-{keras.backend.backend()}"
EVERYWHERE = {
    layers.DROPOUT, layers.QSD, layers.KEY, layers.SHARED_C, layers.SHARED_P, layers.OWN_MAPS,
    layers.MAPS, layers.MULTIPLY, layers.GAMMAS, layers.BETA,
}  # fmt: skip


def measure(suite, subject=""):
    rows = importlib.import_module(SUITES[suite].module).measure(Task(subject, quick=True))
    assert rows
    for row in rows:
        assert all(math.isfinite(value) for value in row.values.values()), row
    return rows


# torch 2.13 compiles with functions of its own that it calls deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("suite", ["torch", "jax", BACKEND])
def test_layers(suite):
    rows = measure(suite)
    assert {row.what["group"] for row in rows} == {"all", "growth", "dtypes", "slow"}
    assert {row.what["candidate"] for row in rows} >= EVERYWHERE
    assert all(row.values["ns"] > 0 for row in rows)


def test_numpy():
    assert {row.what["candidate"] for row in measure("numpy")} >= {layers.QSD, layers.KEY}


@pytest.mark.parametrize("subject", ["torch", "jax", BACKEND])
def test_training(subject):
    assert {row.what["candidate"] for row in measure("training", subject)} == {
        "none",
        "dropout",
        "qsd",
    }


@pytest.mark.parametrize("subject", ["torch", "jax", BACKEND])
def test_memory(subject):
    kept = {row.what["candidate"]: row.values["kept"] for row in measure("memory", subject)}
    if subject == "torch":  # which counts its bytes
        assert kept[layers.QSD] == pytest.approx(2, abs=0.01)
        assert kept[layers.DROPOUT] == 4


@pytest.mark.parametrize("subject", ["torch", "jax", BACKEND])
def test_breakdown(subject):
    measure("breakdown", subject)


def test_fixed():
    groups = {row.what["group"] for row in measure("fixed")}
    assert groups == {"fresh", "table", "key", "convert", "conformance"}


@pytest.mark.parametrize("subject", ["numpy", "torch", "jax", BACKEND])
def test_law(subject):
    rows = measure("law", subject)
    # Over so few draws a right law is near enough to be told from the paper's at small α.
    far = {(row.what["sampler"], row.what["alpha"]): row.values["distance"] for row in rows}
    assert far["quantal", 1e-3] < 0.1 < 0.5 < far["two gammas", 1e-3]


def test_the_command_line(tmp_path):
    command = [sys.executable, "-m", "benchmarks"]
    folder = tmp_path / "results"
    options = ["--quick", "--threads", "1", "--out", str(folder)]
    done = subprocess.run(
        [*command, "run", "numpy", "keras-torch", *options],
        cwd=ROOT, capture_output=True, text=True, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    results = page.load(folder)
    assert set(results) == {"numpy", "keras-torch"}
    assert results["keras-torch"].find(memory="default")
    assert results["keras-torch"].header["quick"]
    subprocess.run([*command, "page", "--from", str(folder)], cwd=ROOT, check=True)
    assert "### Keras on PyTorch" in (tmp_path / "results.md").read_text()


def test_an_unknown_suite_is_named():
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "run", "pytorch"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "no such suite: pytorch; there are torch," in done.stderr
