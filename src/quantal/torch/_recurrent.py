"""torch's recurrent functions, with QSD between their layers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from quantal.torch._functional import dilute

__all__ = ["run_layers"]


@torch.compiler.disable  # torch's compiler leaves its own recurrent modules to eager code, too
def run_layers(alpha: float, function: Any, *args: Any) -> tuple[Tensor, ...]:
    """Run ``torch.lstm``, ``gru``, ``rnn_tanh`` or ``rnn_relu`` one layer at a time.

    Parameters
    ----------
    alpha : float
        The homogeneity.
    function : function
        One of these functions.
    *args
        What torch's own modules pass to it.
    """
    # With a packed sequence, the sizes of its batches come second, and batch_first is left out.
    packed = not isinstance(args[3], bool)
    x, sizes, args = args[0], args[1 : 1 + packed], args[1 + packed :]
    state, weights, biased, layers, rate, train, bidirectional, *batch_first = args
    states = state if isinstance(state, tuple) else (state,)
    directions, per_layer = 1 + bidirectional, len(weights) // layers
    ends = []
    for layer in range(layers):
        if layer:
            x = dilute(x, rate, alpha, training=train)
        start = tuple(s[layer * directions : (layer + 1) * directions] for s in states)
        own = weights[layer * per_layer : (layer + 1) * per_layer]
        given = start if isinstance(state, tuple) else start[0]
        x, *end = function(
            x, *sizes, given, own, biased, 1, 0.0, train, bidirectional, *batch_first
        )
        ends.append(end)
    return x, *(torch.cat(parts) for parts in zip(*ends, strict=True))
