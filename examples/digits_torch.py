"""Dropout against QSD on scikit-learn's digits, in PyTorch: ``python examples/digits_torch.py``."""

from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from quantal.torch import QSD

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 3, 20

x, y = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = torch.tensor(x[order] / 16, dtype=torch.float32), torch.tensor(y[order])


def network(layer):
    """Return three hidden layers, each followed by the layer under test."""
    parts = []
    for inputs, size in ((64, 128), (128, 256), (256, 512)):
        parts += [nn.Linear(inputs, size), nn.ReLU(), layer(RATE)]
    return nn.Sequential(*parts, nn.Linear(512, 10))


def final_cost(layer, seed):
    """Train from a seed, and return the cost of the test data."""
    torch.manual_seed(seed)
    model = network(layer)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 14 * EPOCHS)
    for _ in range(EPOCHS):
        for batch in torch.randperm(1400).split(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        return nn.functional.cross_entropy(model.eval()(x[1400:]), y[1400:]).item()


if __name__ == "__main__":
    for name, layer in {"dropout": nn.Dropout, "QSD": partial(QSD, alpha=ALPHA)}.items():
        costs = [final_cost(layer, seed) for seed in range(SEEDS)]
        print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
