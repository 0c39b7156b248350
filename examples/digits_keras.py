"""Dropout against QSD on scikit-learn's digits, in Keras: python examples/digits_keras.py."""

import keras
import numpy as np
from keras import layers
from sklearn.datasets import load_digits

import quantal

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 5, 40

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = (x[order] / 16).astype("float32"), y[order]


def network(layer):
    hidden = [part for size in (128, 256, 512) for part in (layers.Dense(size, "relu"), layer())]
    return keras.Sequential([keras.Input((64,)), *hidden, layers.Dense(10)])


def schedule(epoch, rate):
    return rate / 5 if epoch in (24, 32, 36) else rate


def test_cost(layer, seed):
    keras.utils.set_random_seed(seed)
    model = network(layer)
    model.compile(
        keras.optimizers.SGD(0.05, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    slower = keras.callbacks.LearningRateScheduler(schedule)
    model.fit(x[:1400], y[:1400], 64, EPOCHS, verbose=0, callbacks=[slower])
    return model.evaluate(x[1400:], y[1400:], verbose=0)


for name, layer in {
    "dropout": lambda: layers.Dropout(RATE),
    "QSD": lambda: quantal.keras.QSD(RATE, alpha=ALPHA),
}.items():
    costs = [test_cost(layer, seed) for seed in range(SEEDS)]
    print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
