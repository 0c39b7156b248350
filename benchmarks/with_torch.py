"""Layers in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import quantal
import quantal.torch
from benchmarks import devices, layers
from benchmarks.harness import Task
from benchmarks.layers import ALPHA, RATE, Candidate
from benchmarks.store import Row

__all__ = ["PyTorch", "beta", "measure", "two_gammas"]

Layer = Callable[[Tensor], Tensor]


def two_gammas(x: Tensor, law: quantal.Dilution) -> Tensor:
    """Dilute by the paper's listing: p = a/(a + b) of two gamma draws, a mask, a size."""
    a = torch._standard_gamma(torch.full_like(x, law.alpha))
    b = torch._standard_gamma(torch.full_like(x, law.beta))
    return _masked(x, a / (a + b), law)


def beta(x: Tensor, law: quantal.Dilution) -> Tensor:
    """Dilute with p from torch's Beta distribution."""
    a, b = (torch.tensor(size, dtype=x.dtype, device=x.device) for size in (law.alpha, law.beta))
    return _masked(x, torch.distributions.Beta(a, b, validate_args=False).sample(x.shape), law)


def _masked(x: Tensor, p: Tensor, law: quantal.Dilution) -> Tensor:
    mask = torch.rand_like(p) < p
    return x * (p * mask / law.retain**2)


class PyTorch:
    """Eager code, and graphs compiled once for all sizes."""

    modes = ("eager", "compiled")
    usual = 2
    dtypes = ("bfloat16", "float16", "float64")
    largest_slow = 2**24

    def __init__(self, device: str = "cpu") -> None:
        self.device, self.wait = devices.on_torch(device)

    def dropout(self) -> nn.Module:
        """Return torch's own layer."""
        return nn.Dropout(RATE)

    def qsd(self, **options: Any) -> nn.Module:
        """Return the layer in its place."""
        return quantal.torch.QSD(RATE, ALPHA, **options)

    def candidates(self, mode: str) -> list[Candidate]:
        """Return the layers; the paper's samplers break a graph, so they are eager only."""
        factor, law = torch.tensor(1.25), quantal.Dilution(RATE, ALPHA)
        found = [
            Candidate(layers.DROPOUT, self.dropout()),
            Candidate(layers.QSD, self.qsd()),
            Candidate(layers.KEY, self.qsd(generator=quantal.key(0))),
            Candidate(layers.SHARED_C, self.qsd(broadcast_dims=0)),
            Candidate(layers.SHARED_P, self.qsd(p_broadcast_dims=0)),
            Candidate(layers.OWN_MAPS, nn.Dropout2d(RATE), layers.OWN_MAPS, maps=True),
            Candidate(layers.MAPS, quantal.torch.QSD2d(RATE, ALPHA), layers.OWN_MAPS, maps=True),
            Candidate(layers.MULTIPLY, lambda x: x * factor.to(x.dtype)),
        ]
        if mode == "compiled":
            return [
                Candidate(one.name, _compiled(one.layer), one.baseline, one.maps) for one in found
            ]
        return [
            *found,
            Candidate(layers.GAMMAS, lambda x: two_gammas(x, law), layers.QSD, slow=True),
            Candidate(layers.BETA, lambda x: beta(x, law), layers.QSD, slow=True),
        ]

    def step(
        self, layer: Layer, shape: tuple[int, ...], dtype: str, mode: str
    ) -> Callable[[], object]:
        """Return a forward and backward pass that waits for its results."""
        kind = getattr(torch, dtype)
        x, upstream = (torch.randn(shape, device=self.device).to(kind) for _ in range(2))
        x.requires_grad_()

        def call() -> None:
            layer(x).backward(upstream)
            x.grad = None
            self.wait()

        return call


def _compiled(layer: Layer) -> Layer:
    torch._dynamo.config.recompile_limit = 64  # a graph for each dtype
    compiled: Layer = torch.compile(layer, fullgraph=True, dynamic=True)
    return compiled


def measure(task: Task) -> list[Row]:
    """Measure the cost of layers."""
    return layers.measure(PyTorch(task.device), task)
