"""The optimisers of the Keras examples: torch's and Optax's conventions, step by step."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from examples.experiments import Optimiser
from examples.with_keras.optimisers import optimiser

START = np.array([1.0, -2.0, 0.5])
GRADIENTS = [np.array([0.3, -0.1, 0.0]), np.array([-0.2, 0.4, 1.0]), np.array([0.1, 0.1, 1e-7])]
RATES = (0.1, 0.02, 0.02)
DECAY = 0.05


def moved(plan: Optimiser) -> np.ndarray:
    """The weights after the steps, the rate changing after the first."""
    variable = keras.Variable(START, dtype="float32")
    chosen = optimiser(plan)
    chosen.build([variable])
    for rate, gradient in zip(RATES, GRADIENTS, strict=True):
        chosen.learning_rate = rate
        chosen.apply([keras.ops.convert_to_tensor(gradient, "float32")], [variable])
    return keras.ops.convert_to_numpy(variable)


@pytest.mark.parametrize("nesterov", [False, True])
def test_velocity_is_free_of_the_learning_rate(nesterov: bool) -> None:
    weight, velocity = START.copy(), np.zeros(3)
    for rate, gradient in zip(RATES, GRADIENTS, strict=True):
        gradient = gradient + DECAY * weight
        velocity = 0.9 * velocity + gradient
        weight = weight - rate * (gradient + 0.9 * velocity if nesterov else velocity)
    plan = Optimiser("sgd", 0.1, momentum=0.9, nesterov=nesterov, weight_decay=DECAY)
    np.testing.assert_allclose(moved(plan), weight, rtol=1e-6)


def test_adam_adds_epsilon_to_the_corrected_root() -> None:
    weight, mean, square = START.copy(), np.zeros(3), np.zeros(3)
    for step, (rate, gradient) in enumerate(zip(RATES, GRADIENTS, strict=True), 1):
        gradient = gradient + 1e-8 * weight
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        root = np.sqrt(square / (1 - 0.999**step))
        weight = weight - rate * mean / (1 - 0.9**step) / (root + 1e-8)
    # A decay as small as epsilon, so that where epsilon stands shows in the first step.
    np.testing.assert_allclose(moved(Optimiser("adam", 0.1, weight_decay=1e-8)), weight, rtol=2e-5)


def test_clipping_sees_the_whole_gradient_of_a_repeated_word() -> None:
    model = keras.Sequential([keras.Input((4,), dtype="int32"), keras.layers.Embedding(3, 2)])
    model.compile(optimiser(Optimiser("sgd", 1.0, clip=0.5)), "mean_squared_error")
    before = keras.ops.convert_to_numpy(model.layers[0].embeddings)
    # One word four times, far off: the norm of the gradient is well above the bound.
    model.train_on_batch(np.ones((1, 4), np.int32), np.full((1, 4, 2), 100.0))
    change = keras.ops.convert_to_numpy(model.layers[0].embeddings) - before
    assert np.linalg.norm(change) == pytest.approx(0.5, rel=1e-4)
