"""Dropout against QSD on scikit-learn's digits, in JAX: ``python examples/digits_jax.py``."""

import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits

import quantal

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 3, 20

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = (x[order] / 16).astype(np.float32), y[order]


def network(layer, rngs):
    """Return three hidden layers, each followed by the layer under test."""
    hidden = []
    for inputs, outputs in ((64, 128), (128, 256), (256, 512)):
        hidden += [nnx.Linear(inputs, outputs, rngs=rngs), nnx.relu, layer(rngs)]
    return nnx.Sequential(*hidden, nnx.Linear(512, 10, rngs=rngs))


def cost(model, x, y):
    """Return the mean cross-entropy."""
    return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()


@nnx.jit
def step(model, optimiser, x, y):
    """Take a step down the gradient of a batch."""
    optimiser.update(model, nnx.grad(cost)(model, x, y))


def final_cost(layer, seed):
    """Train from a seed, and return the cost of the test data."""
    model = network(layer, nnx.Rngs(seed))
    rate = optax.cosine_decay_schedule(0.1, 14 * EPOCHS)
    optimiser = nnx.Optimizer(model, optax.sgd(rate, momentum=0.9), wrt=nnx.Param)
    quick_step = nnx.cached_partial(step, model, optimiser)
    rng = np.random.default_rng(seed)
    for _ in range(EPOCHS):
        for batch in rng.permutation(1400).reshape(14, 100):
            quick_step(x[batch], y[batch])
    model.eval()
    return float(cost(model, x[1400:], y[1400:]))


if __name__ == "__main__":
    for name, layer in {
        "dropout": lambda rngs: nnx.Dropout(RATE, rngs=rngs),
        "QSD": lambda rngs: quantal.jax.nnx.QSD(RATE, alpha=ALPHA, rngs=rngs),
    }.items():
        costs = [final_cost(layer, seed) for seed in range(SEEDS)]
        print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
