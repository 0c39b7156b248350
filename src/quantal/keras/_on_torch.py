"""The draw of the Keras layers on torch."""

from __future__ import annotations

from typing import Any

import torch

from quantal import torch as adapter
from quantal.keys import Key


def dilute(layer: Any, x: torch.Tensor, shared_axes: tuple[int, ...]) -> torch.Tensor:
    """Dilute x by the law of a layer, drawing from its seed."""
    # Without a seed from torch's own stream, as Keras's own dropout does there.
    unseeded = layer.seed is None or x.is_meta
    return adapter.dilute(
        x,
        layer.rate,
        layer.alpha,
        generator=None if unseeded else _generator(layer, x.device),
        vary=layer.dilution.vary,
        unit_mean=layer.dilution.unit_mean,
        broadcast_dims=shared_axes,
        p_broadcast_dims=layer.p_broadcast_dims,
    )


@torch.compiler.disable  # which knows no generators
def _generator(layer: Any, device: torch.device) -> torch.Generator | Key:
    seed, calls = layer.seed_generator.next().tolist()
    if isinstance(layer.seed, Key):
        return layer.seed.fold_in(calls)
    # Of 32 bits, since that is all that generators of CPUs take; the factor keeps the streams of
    # neighbouring seeds apart: they would meet only after a million calls.
    return torch.Generator(device).manual_seed((seed * 0x9E3779B1 + calls) % 2**32)
