"""Dropout against QSD on scikit-learn's digits, in PyTorch: ``python examples/digits_torch.py``."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import quantal

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 3, 20

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
order = torch.tensor(np.random.default_rng(0).permutation(len(x)))
train, test = order[:1400], order[1400:]


def network(layer):
    """Return three hidden layers, each followed by the layer under test."""
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), layer(), nn.Linear(128, 256), nn.ReLU(), layer(),
        nn.Linear(256, 512), nn.ReLU(), layer(), nn.Linear(512, 10),
    )  # fmt: skip


def final_cost(layer, seed):
    """Train from a seed, and return the cost of the test data."""
    torch.manual_seed(seed)
    model = network(layer)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)
    for _ in range(EPOCHS):
        for batch in train[torch.randperm(len(train))].split(100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
        slower.step()
    model.eval()
    with torch.no_grad():
        return nn.functional.cross_entropy(model(x[test]), y[test]).item()


if __name__ == "__main__":
    dropout, qsd = lambda: nn.Dropout(RATE), lambda: quantal.torch.QSD(RATE, alpha=ALPHA)
    for name, layer in {"dropout": dropout, "QSD": qsd}.items():
        costs = [final_cost(layer, seed) for seed in range(SEEDS)]
        print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
