"""The models in JAX: sizes, weights, and steps that lower for a GPU."""

from __future__ import annotations

import re
from functools import partial
from math import prod
from pathlib import Path

import jax
import numpy as np
import pytest
from flax import nnx
from jax import export
from jax_runs import small_run
from small_runs import narrow

from examples import initial
from examples.data import Batch
from examples.experiments import EXPERIMENTS, Experiment, experiment
from examples.settings import Settings
from examples.with_jax.models import build
from examples.with_jax.steps import Plan, State, optimiser, step
from examples.with_jax.weights import dump, load

Shape = jax.ShapeDtypeStruct
PAPER = [name for name in EXPERIMENTS if name != "digits-mlp"]


def block(inputs: int, width: int) -> int:
    convolutions = 9 * inputs * width + 9 * width * width
    return convolutions + (inputs * width if inputs != width else 0) + 2 * inputs + 2 * width


def lstm(inputs: int, units: int) -> int:
    return 4 * units * (inputs + units + 1)


COUNTS = {
    "mnist-mlp": 784 * 128 + 128 + 128 * 256 + 256 + 256 * 512 + 512 + 512 * 10 + 10,
    "mnist-lenet5": 61_706,
    "cifar10-wrn": sum(
        [
            27 * 16,
            block(16, 96) + block(96, 96),
            block(96, 192) + block(192, 192),
            block(192, 384) + block(384, 384),
            2 * 384 + 384 * 10 + 10,
        ]
    ),
    "ptb-medium": 10_000 * 650 + 2 * lstm(650, 650) + 650 * 10_000 + 10_000,
    "ptb-large": 10_000 * 1300 + 2 * lstm(1300, 1300) + 1300 * 10_000 + 10_000,
    "reviews-lstm": 20_000 * 128 + lstm(128, 128) + 128 + 1,
    "reviews-gru": 20_000 * 128 + 3 * 128 * (128 + 128 + 2) + 128 + 1,
}


@pytest.mark.parametrize("name", PAPER)
def test_parameter_counts(name: str) -> None:
    params = nnx.state(build(experiment(name), Settings(name, "jax")), nnx.Param)
    assert sum(prod(leaf.shape) for leaf in jax.tree.leaves(params)) == COUNTS[name]


@pytest.mark.parametrize("name", PAPER)
def test_weights_go_in_and_come_out(name: str) -> None:
    model = build(narrow(name), Settings(name, "jax"))
    given = initial.weights(narrow(name), 3)
    load(model, given)
    found = dump(nnx.state(model, nnx.Param))
    assert found.keys() == given.keys()
    for array in given:
        np.testing.assert_array_equal(found[array], given[array].astype(np.float32))


def test_weights_that_do_not_fit_are_named() -> None:
    plan = narrow("reviews-gru")
    weights = initial.weights(plan, 0)
    with pytest.raises(ValueError, match="the model has no dense2/kernel"):
        load(build(plan, Settings(plan.name, "jax")), weights | {"dense2/kernel": np.ones(2)})
    with pytest.raises(ValueError, match=r"rnn/kernel has the shape \(2,\), not \(8, 48\)"):
        load(build(plan, Settings(plan.name, "jax")), weights | {"rnn/kernel": np.ones(2)})


def abstract_batch(plan: Experiment) -> Batch:
    pixels = {"mlp": (28, 28, 1), "lenet5": (28, 28, 1), "wrn": (32, 32, 3)}
    if plan.model in pixels:
        x = Shape((plan.batch, *pixels[plan.model]), np.float32)
        return Batch(x, Shape((plan.batch,), np.int32))
    words = Shape((plan.batch, plan.sizes["steps"]), np.int32)
    return Batch(words, words if plan.model == "language" else Shape((plan.batch,), np.float32))


def abstract_step(settings: Settings) -> tuple[Plan, tuple]:
    """A step at the paper's size, and the shapes of its arguments: no memory is needed."""
    plan = settings.plan
    model = build(plan, settings)
    graph, params, stats = nnx.split(model, nnx.Param, nnx.BatchStat)
    moments = jax.eval_shape(optimiser(plan.optimiser).init, params)
    carry = jax.eval_shape(lambda: model.start(plan.batch))
    number = Shape((), np.float32)
    state = State(params, stats, moments, carry, Shape((), np.uint32), number)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), len(plan.sites)))
    code = Plan(graph, plan.optimiser, plan.cost, plan.costs_per_sample)
    return code, (state, abstract_batch(plan), keys, number)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", PAPER)
def test_steps_lower_for_cuda(name: str, precision: str) -> None:
    plan, arguments = abstract_step(Settings(name, "jax", precision=precision))
    portable, _ = abstract_step(Settings(name, "jax", precision=precision, stream="portable"))
    assert portable == plan  # the streams differ in their keys, not in code
    train = jax.jit(partial(step, plan), donate_argnums=0)
    lowered = export.export(train, platforms=["cuda"])(*arguments)
    assert lowered.platforms == ("cuda",)
    program = lowered.mlir_module()
    assert "callback" not in program  # the table is part of it: nothing is asked of the host
    products = re.findall(r"stablehlo\.(?:dot_general|convolution).*-> tensor<\w+x(\w+)>", program)
    assert set(products) == {{"float32": "f32", "bfloat16": "bf16"}[precision]}
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(arguments[0].params)} == {"float32"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device: expected auto or cpu, since JAX finds no GPU here. Received: device='gpu'"),
        ({"devices": 1000}, "devices: expected at most 1, as many as JAX finds here. Received: devices=1000"),
    ],
)  # fmt: skip
def test_missing_devices(options: dict, message: str, tmp_path: Path) -> None:
    from examples.with_jax.devices import at_work

    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        pytest.skip("the devices are there")
    run = small_run("digits-mlp", tmp_path, **options)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"), at_work(run):
        pass
