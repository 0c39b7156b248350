"""Dropout against QSD on scikit-learn's digits, in PyTorch: python examples/digits_torch.py."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import quantal

RATE, ALPHA, SEEDS, EPOCHS = 0.2, 0.2, 5, 40

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
order = torch.tensor(np.random.default_rng(0).permutation(len(x)))
train, test = order[:1400], order[1400:]


def network(layer):
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), layer(), nn.Linear(128, 256), nn.ReLU(), layer(),
        nn.Linear(256, 512), nn.ReLU(), layer(), nn.Linear(512, 10),
    )  # fmt: skip


def test_cost(layer, seed):
    torch.manual_seed(seed)
    model = network(layer)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        if epoch in (24, 32, 36):
            optimiser.param_groups[0]["lr"] /= 5
        for batch in train[torch.randperm(len(train))].split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        return nn.functional.cross_entropy(model(x[test]), y[test]).item()


for name, layer in {
    "dropout": lambda: nn.Dropout(RATE),
    "QSD": lambda: quantal.torch.QSD(RATE, alpha=ALPHA),
}.items():
    costs = [test_cost(layer, seed) for seed in range(SEEDS)]
    print(f"{name:8} test cost, median of {SEEDS} seeds: {np.median(costs):.4f} nats")
