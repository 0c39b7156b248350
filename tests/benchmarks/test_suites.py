"""Every suite runs, in its quick form; the figures are not looked at."""

import importlib
import math

import keras
import pytest

from benchmarks import devices, layers
from benchmarks.__main__ import main
from benchmarks.harness import Task
from benchmarks.memory import tensorflow_counts
from benchmarks.report import page
from benchmarks.runner import SUITES
from benchmarks.with_torch import PyTorch

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
    assert {row.what["group"] for row in rows} == {"all", "dtypes", "slow"}
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
    rows = {row.what["candidate"]: row.values for row in measure("memory", subject)}
    # What is counted, not read off the process, is right also where it is small.
    if subject == "torch":
        assert rows[layers.QSD]["kept"] == pytest.approx(2, abs=0.01)
        assert rows[layers.DROPOUT]["kept"] == 4
    else:
        assert all(values["kept"] >= 0 for values in rows.values())
        # Two bytes where it can be: TensorFlow keeps the coefficients, but not their making.
        kept = 2 if subject == "jax" else 4
        assert rows[layers.QSD]["kept"] - kept < 0.6  # the table, beside so few units
        if subject == "jax" or tensorflow_counts():
            assert all(values["peak"] >= 8 for values in rows.values())


@pytest.mark.parametrize("subject", ["torch", "jax", BACKEND])
def test_breakdown(subject):
    measure("breakdown", subject)


def test_fixed():
    groups = {row.what["group"] for row in measure("fixed")}
    assert groups == {"fresh", "table", "key", "convert", "conformance"}


@pytest.mark.parametrize("subject", ["torch", "jax", BACKEND])
def test_schedule(subject):
    rows = measure("schedule", subject)
    assert {row.what["new"] for row in rows} == {"alpha", "rate"}
    assert all(row.values["step"] > 0 for row in rows)


@pytest.mark.parametrize("subject", ["numpy", "torch", "jax", BACKEND])
def test_law(subject):
    rows = measure("law", subject)
    # Over so few draws a right law is near enough to be told from the paper's at small α.
    far = {(row.what["sampler"], row.what["alpha"]): row.values["distance"] for row in rows}
    assert far["quantal", 1e-3] < 0.1 < 0.5 < far["two gammas", 1e-3]


def test_the_command_line(tmp_path):
    folder = tmp_path / "results"
    # Each suite measures in processes of its own, which this command line starts too.
    main(["run", "numpy", "keras-torch", "--quick", "--threads", "1", "--out", str(folder)])
    results = page.load(folder)
    assert set(results) == {"numpy", "keras-torch"}
    assert results["keras-torch"].find(memory="default")
    assert results["keras-torch"].header["quick"]
    main(["page", "--from", str(folder)])
    assert "### Keras on PyTorch" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pytorch"], "no such suite: pytorch; there are torch,"),
        (["law", "--device", "gpu"], "--device: expected cpu for law. Received: gpu"),
        (["torch", "--device", "tpu"], "argument --device: invalid choice: 'tpu'"),
    ],
)
def test_a_wrong_command_is_told(arguments, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["run", *arguments])
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("on", [devices.on_torch, devices.on_tensorflow, devices.on_jax])
def test_a_gpu_that_is_not_there_is_refused(on):
    with pytest.raises(SystemExit, match=r"--device: expected a GPU that .* can use"):
        on("gpu")


def test_no_step_of_torch_leaves_its_device():
    # On the meta device there are no numbers, so an array made elsewhere raises.
    framework = PyTorch("meta")
    for one in framework.candidates("eager"):
        if one.name == layers.BETA:
            continue  # torch has no kernel for it there
        framework.step(one.layer, layers.shape(2**8, one.maps), "float32", "eager")()
