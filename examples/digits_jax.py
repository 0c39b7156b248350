"""Dropout against QSD on scikit-learn's digits, in JAX: ``python examples/digits_jax.py``."""

from functools import partial

import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

from quantal.jax.nnx import QSD

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 3, 20

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = (x[order] / 16).astype(np.float32), y[order]


def network(layer, rngs):
    """Return three hidden layers, each followed by the layer under test."""
    parts = []
    for inputs, size in ((64, 128), (128, 256), (256, 512)):
        parts += [nnx.Linear(inputs, size, rngs=rngs), nnx.relu, layer(RATE, rngs=rngs)]
    return nnx.Sequential(*parts, nnx.Linear(512, 10, rngs=rngs))


def cost(model, x, y):
    """Return the mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


@nnx.jit
def step(model, optimiser, x, y):
    """Take a step down the gradient of a batch."""
    optimiser.update(model, nnx.grad(cost)(model, x, y))


def final_cost(layer, seed):
    """Train from a seed, and return the cost of the test data."""
    model, rng = network(layer, nnx.Rngs(seed)), np.random.default_rng(seed)
    sgd = optax.sgd(optax.cosine_decay_schedule(0.1, 14 * EPOCHS), momentum=0.9)
    quick_step = nnx.cached_partial(step, model, nnx.Optimizer(model, sgd, wrt=nnx.Param))
    for _ in range(EPOCHS):
        for batch in rng.permutation(1400).reshape(14, 100):
            quick_step(x[batch], y[batch])
    return float(cost(nnx.view(model, deterministic=True), x[1400:], y[1400:]))


if __name__ == "__main__":
    for name, layer in {"dropout": nnx.Dropout, "QSD": partial(QSD, alpha=ALPHA)}.items():
        costs = [final_cost(layer, seed) for seed in range(SEEDS)]
        print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
