"""Dropout against QSD on scikit-learn's digits, in Keras: ``python examples/digits_keras.py``."""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import quantal

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 3, 20

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = (x[order] / 16).astype("float32"), y[order]


def network(layer):
    """Return three hidden layers, each followed by the layer under test."""
    hidden = [part for size in (128, 256, 512) for part in (layers.Dense(size, "relu"), layer())]
    return keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10)])


def final_cost(layer, seed):
    """Train from a seed, and return the cost of the test data."""
    keras.utils.set_random_seed(seed)
    model = network(layer)
    rate = keras.optimizers.schedules.CosineDecay(0.1, 14 * EPOCHS)
    cost = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(rate, momentum=0.9), cost)
    model.fit(x[:1400], y[:1400], batch_size=100, epochs=EPOCHS, verbose=0)
    return model.evaluate(x[1400:], y[1400:], verbose=0)


if __name__ == "__main__":
    dropout, qsd = lambda: layers.Dropout(RATE), lambda: quantal.keras.QSD(RATE, alpha=ALPHA)
    for name, layer in {"dropout": dropout, "QSD": qsd}.items():
        costs = [final_cost(layer, seed) for seed in range(SEEDS)]
        print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
