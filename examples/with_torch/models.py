"""The models, built from the sizes of an experiment.

Attributes are named as in `examples.initial`, lists counting from 0 where it counts from 1. What a
site sees has the channels last; a ``probe`` passes on what is measured beside the sites.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise, starmap
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, relu

from examples.experiments import Experiment

__all__ = ["build"]

Sizes = dict[str, Any]
Sites = Sequence[nn.Module]
State = list[tuple[Tensor, Tensor]]


def build(experiment: Experiment, sites: Sites) -> nn.Module:
    """Return the model of an experiment, with these layers at its sites."""
    return _KINDS[experiment.model](experiment.sizes, sites)


class MLP(nn.Module):
    """Dense layers with ReLU and a site after each but the last."""

    def __init__(self, sizes: Sizes, sites: Sites) -> None:
        super().__init__()
        widths = (sizes["inputs"], *sizes["hidden"], sizes["classes"])
        self.dense = nn.ModuleList(starmap(nn.Linear, pairwise(widths)))
        self.sites = nn.ModuleList(sites)

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for dense, site in zip(self.dense, self.sites, strict=False):
            x = site(relu(dense(x)))
        return self.dense[-1](x)


class LeNet5(nn.Module):
    """Two convolutions, each with average pooling, and three dense layers."""

    def __init__(self, sizes: Sizes, sites: Sites) -> None:
        super().__init__()
        first, second = sizes["maps"]
        kernel = sizes["kernel"]
        # Images of 28 pixels act as 32.
        self.conv = nn.ModuleList(
            [nn.Conv2d(1, first, kernel, padding=2), nn.Conv2d(first, second, kernel)]
        )
        side = ((32 - kernel + 1) // 2 - kernel + 1) // 2
        widths = (side * side * second, *sizes["dense"], sizes["classes"])
        self.dense = nn.ModuleList(starmap(nn.Linear, pairwise(widths)))
        self.sites = nn.ModuleList(sites)

    def forward(self, x: Tensor) -> Tensor:
        sites = iter(self.sites)
        for conv in self.conv:
            x = avg_pool2d(_on_maps(next(sites), relu(conv(x))), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)
        for dense, site in zip(self.dense, sites, strict=False):
            x = site(relu(dense(x)))
        return self.dense[-1](x)


class WideResNet(nn.Module):
    """Groups of pre-activated residual blocks, with a site inside each block."""

    def __init__(self, sizes: Sizes, sites: Sites) -> None:
        super().__init__()
        channels, widths, blocks = sizes["stem"], sizes["widths"], sizes["blocks"]
        self.stem = _convolution(3, channels)
        self.group = nn.ModuleList()
        self.sites = nn.ModuleList(sites)
        for number, width in enumerate(widths):
            self.group.append(Group(blocks, channels, width, stride=2 if number else 1))
            channels = width
        self.norm = nn.BatchNorm2d(channels)
        self.probe = nn.Identity()
        self.dense = nn.Linear(channels, sizes["classes"])

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        groups: Any = self.group
        blocks = (block for group in groups for block in group.block)
        for block, site in zip(blocks, self.sites, strict=True):
            x = block(x, site)
        return self.dense(_on_maps(self.probe, relu(self.norm(x))).mean((2, 3)))


class Group(nn.Module):
    """Blocks of one width; the first may halve the maps."""

    def __init__(self, blocks: int, channels: int, width: int, stride: int) -> None:
        super().__init__()
        later = (Block(width, width, 1) for _ in range(blocks - 1))
        self.block = nn.ModuleList([Block(channels, width, stride), *later])


class Block(nn.Module):
    """Two convolutions, each after normalisation and ReLU, beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv1 = _convolution(channels, width, stride)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv2 = _convolution(width, width)
        if channels != width:
            self.shortcut = nn.Conv2d(channels, width, 1, stride, bias=False)

    def forward(self, x: Tensor, site: nn.Module) -> Tensor:
        active = relu(self.norm1(x))
        y = relu(self.norm2(self.conv1(active)))
        y = self.conv2(_on_maps(site, y))
        return y + (self.shortcut(active) if hasattr(self, "shortcut") else x)


class Language(nn.Module):
    """Predicts the next word; what leaves the embedding and each LSTM passes a site."""

    def __init__(self, sizes: Sizes, sites: Sites) -> None:
        super().__init__()
        units, layers = sizes["units"], sizes["layers"]
        self.embedding = nn.Embedding(sizes["vocabulary"], units)
        self.rnn = nn.ModuleList(_lstm(units, units) for _ in range(layers))
        self.dense = nn.Linear(units, sizes["vocabulary"])
        self.sites = nn.ModuleList(sites)

    def forward(self, words: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        """Return scores for the next words, and the state to go on with, cut from its history."""
        x = self.sites[0](self.embedding(words))
        after = []
        for number, rnn in enumerate(self.rnn):
            x, (h, c) = _recur(rnn, x, state[number] if state else None)
            x = self.sites[1 + number](x)
            after.append((h.detach(), c.detach()))
        return self.dense(x), after


class Reviews(nn.Module):
    """Rates a text by the last output of an LSTM or GRU."""

    def __init__(self, sizes: Sizes, sites: Sites) -> None:
        super().__init__()
        inputs, units = sizes["embedding"], sizes["units"]
        self.embedding = nn.Embedding(sizes["vocabulary"], inputs)
        gru = sizes["cell"] == "gru"
        self.rnn = nn.GRU(inputs, units, batch_first=True) if gru else _lstm(inputs, units)
        self.dense = nn.Linear(units, 1)
        self.sites = nn.ModuleList(sites)

    def forward(self, words: Tensor) -> Tensor:
        *before, after = self.sites
        x = self.embedding(words)
        for site in before:
            x = site(x)
        x, _ = _recur(self.rnn, x)
        return self.dense(after(x[:, -1])).squeeze(1)


_KINDS: dict[str, Callable[[Sizes, Sites], nn.Module]] = {
    "mlp": MLP,
    "lenet5": LeNet5,
    "wrn": WideResNet,
    "language": Language,
    "reviews": Reviews,
}


def _on_maps(site: nn.Module, maps: Tensor) -> Tensor:
    # Maps in the channels_last format are dense in this order, the same in every backend.
    return site(maps.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def _convolution(channels: int, width: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)


def _lstm(inputs: int, units: int) -> nn.LSTM:
    layer = nn.LSTM(inputs, units, batch_first=True)
    # torch adds two biases; one is enough, as in the other backends.
    second: Any = layer.bias_hh_l0
    nn.init.zeros_(second).requires_grad_(False)
    return layer


def _recur(rnn: nn.Module, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    # On CPUs autocast asks for an LSTM in bfloat16, which most do not have (torch 2.13).
    with torch.autocast("cpu", enabled=False):
        return rnn(x, state)
