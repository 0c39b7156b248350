"""Weights of a model, from and to the layout of `examples.initial`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from quantal._errors import wrong_value

__all__ = ["dump", "load"]


@torch.no_grad()
def load(model: nn.Module, weights: dict[str, NDArray]) -> None:
    """Give a model these weights."""
    own, given = (
        {name: array.shape for name, array in arrays.items()} for arrays in (dump(model), weights)
    )
    if own != given:
        raise wrong_value("weights", f"arrays of shapes {own}", given)
    for name, parts in _arrays(model).items():
        arrays = weights[name] if len(parts) > 1 else [weights[name]]
        for part, array in zip(parts, arrays, strict=True):
            part.copy_(torch.from_numpy(array))


@torch.no_grad()
def dump(model: nn.Module) -> dict[str, NDArray]:
    """Return the weights of a model."""
    parts = {
        name: [part.numpy(force=True) for part in parts] for name, parts in _arrays(model).items()
    }
    # Copies, since training goes on.
    return {
        name: np.stack(part) if len(part) > 1 else part[0].copy() for name, part in parts.items()
    }


def _arrays(model: nn.Module) -> dict[str, list[Tensor]]:
    """Return the parameters seen in that layout; those of one name make one array, stacked."""
    found: dict[str, list[Tensor]] = {}
    for path, module in model.named_modules():
        name = re.sub(r"\.(\d+)", lambda number: str(int(number[1]) + 1), path).replace(".", "/")
        match module:
            case nn.Linear():
                found[f"{name}/kernel"] = [module.weight.T]
            case nn.Conv2d():
                found[f"{name}/kernel"] = [module.weight.permute(2, 3, 1, 0)]
            case _BatchNorm():
                found[f"{name}/scale"] = [module.weight]
            case nn.Embedding():
                found[name] = [module.weight]
            case nn.LSTM() | nn.GRU():
                recurrent: Any = module  # torch has no types for the weights that it names
                found[f"{name}/kernel"] = [recurrent.weight_ih_l0.T]
                found[f"{name}/recurrent"] = [recurrent.weight_hh_l0.T]
                biases = [recurrent.bias_ih_l0, recurrent.bias_hh_l0]
                found[f"{name}/bias"] = [bias for bias in biases if bias.requires_grad]
        if getattr(module, "bias", None) is not None and not isinstance(module, nn.RNNBase):
            found[f"{name}/bias"] = [module.bias]
    return found
