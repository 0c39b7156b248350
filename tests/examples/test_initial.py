"""Initial weights: shapes, counts and laws."""

from __future__ import annotations

from dataclasses import replace
from math import prod, sqrt

import numpy as np
import pytest

from examples.experiments import EXPERIMENTS, Experiment, experiment
from examples.initial import shapes, weights


def few_words(name: str, **sizes: int) -> Experiment:
    """An experiment whose vocabulary, if it has one, is small: all other laws stay."""
    plan = experiment(name)
    if "vocabulary" in plan.sizes:
        return replace(plan, sizes=plan.sizes | {"vocabulary": 200} | sizes)
    return plan


def norm(channels: int) -> int:
    return 2 * channels


def block(inputs: int, outputs: int) -> int:
    shortcut = inputs * outputs if inputs != outputs else 0
    convolutions = 9 * inputs * outputs + 9 * outputs * outputs
    return norm(inputs) + norm(outputs) + convolutions + shortcut


def lstm(inputs: int, units: int) -> int:
    return 4 * units * (inputs + units) + 4 * units


def language(units: int) -> int:
    return 10_000 * units + 2 * lstm(units, units) + units * 10_000 + 10_000


BY_HAND = {
    "mnist-mlp": (784 + 1) * 128 + (128 + 1) * 256 + (256 + 1) * 512 + (512 + 1) * 10,
    "digits-mlp": (64 + 1) * 128 + (128 + 1) * 256 + (256 + 1) * 512 + (512 + 1) * 10,
    "mnist-lenet5": 61_706,
    "cifar10-wrn": 9 * 3 * 16  # stem
    + block(16, 96) + block(96, 96) + block(96, 192) + block(192, 192)
    + block(192, 384) + block(384, 384) + norm(384) + (384 + 1) * 10,
    "ptb-medium": language(650),
    "ptb-large": language(1300),
    "reviews-lstm": 20_000 * 128 + lstm(128, 128) + 128 + 1,
    "reviews-gru": 20_000 * 128 + 3 * 128 * (128 + 128) + 2 * 3 * 128 + 128 + 1,
}  # fmt: skip


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_the_number_of_weights_is_the_architecture_s(name: str) -> None:
    assert sum(prod(shape) for shape in shapes(experiment(name)).values()) == BY_HAND[name]


def test_the_counts_by_hand() -> None:
    assert BY_HAND["cifar10-wrn"] == 6_172_122
    assert BY_HAND["ptb-medium"] == 19_775_200
    assert BY_HAND["ptb-large"] == 53_060_400


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if name != "ptb-large"])
def test_weights_have_their_shapes_and_depend_on_the_seed(name: str) -> None:
    plan = few_words(name)
    one, same, other = (weights(plan, seed) for seed in (0, 0, 1))
    assert {key: array.shape for key, array in one.items()} == shapes(plan)
    assert all(np.array_equal(one[key], same[key]) for key in one)
    drawn = [key for key in one if len(np.unique(one[key])) > 2]  # no zeros, ones, forget gates
    assert drawn
    assert not any(np.array_equal(one[key], other[key]) for key in drawn)


def close_to_law(array: np.ndarray, std: float, kurtosis: float) -> None:
    """Mean and standard deviation within 5 standard errors."""
    n = array.size
    assert abs(array.mean()) < 5 * std / sqrt(n)
    assert abs(array.std() / std - 1) < 5 * sqrt((kurtosis - 1) / (4 * n))


@pytest.mark.parametrize("name", ["mnist-mlp", "mnist-lenet5", "cifar10-wrn"])
def test_he(name: str) -> None:
    for key, array in weights(experiment(name), 0).items():
        if key.endswith("kernel"):
            close_to_law(array, sqrt(2 / prod(array.shape[:-1])), kurtosis=3)
        else:
            assert np.array_equal(array, np.full(array.shape, float(key.endswith("scale")))), key


@pytest.mark.parametrize(("name", "half"), [("ptb-medium", 0.05), ("ptb-large", 0.04)])
def test_uniform(name: str, half: float) -> None:
    for array in weights(few_words(name, layers=1), 0).values():
        close_to_law(array, half / sqrt(3), kurtosis=1.8)
        assert np.abs(array).max() <= half


def test_glorot_and_orthogonal() -> None:
    for name, gates in (("reviews-lstm", 4), ("reviews-gru", 3)):
        drawn = weights(few_words(name), 0)
        half = sqrt(6 / (128 + gates * 128))
        close_to_law(drawn["rnn/kernel"], half / sqrt(3), kurtosis=1.8)
        assert np.abs(drawn["rnn/kernel"]).max() <= half
        close_to_law(drawn["embedding"], 0.05 / sqrt(3), kurtosis=1.8)
        for gate in np.split(drawn["rnn/recurrent"], gates, axis=1):
            np.testing.assert_allclose(gate @ gate.T, np.eye(128), atol=1e-12)


def test_only_the_forget_gate_starts_open() -> None:
    bias = weights(few_words("reviews-lstm"), 0)["rnn/bias"]
    assert bias.tolist() == [0] * 128 + [1] * 128 + [0] * 256
    assert not weights(few_words("reviews-gru"), 0)["rnn/bias"].any()
