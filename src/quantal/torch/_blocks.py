"""Attention in blocks. None keeps its weights: the backward pass computes them again.

So the memory for the backward pass grows with the length of a sequence, not with its square.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from quantal.torch import _fused
from quantal.torch._private_api import runs_as_it_is
from quantal.torch._self_check import capturing

__all__ = ["in_blocks"]

# The most weights of a block: on CPUs they stay in the cache, on other devices they keep it busy.
_ON_CPU = 2**20
_ELSEWHERE = 2**24

Attend = Callable[..., Tensor]


def in_blocks(
    attend: Attend, query: Tensor, key: Tensor, value: Tensor, masks: Sequence[Tensor]
) -> Tensor:
    """Return the output of attention, computed block by block if there are many weights.

    Parameters
    ----------
    attend : callable
        ``attend(seed, first, query, key, value, *masks)`` returns the output for some samples,
        heads and queries. ``seed`` is what to draw from, or None for torch's own stream, and
        ``first`` the number of the first query.
    query, key, value : Tensor
        With axes of samples and heads, if any, then of positions and of features.
    masks : sequence of Tensor
        What can be broadcast to the weights.
    """
    samples = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, *masks)))
    sizes = (*samples, query.shape[-2], key.shape[-2])
    most = _ON_CPU if query.device.type == "cpu" else _ELSEWHERE
    if math.prod(sizes) <= most or not (runs_as_it_is(query) and _draws_again(query)):
        return attend(None, 0, query, key, value, *masks)
    return _split(attend, (query, key, value, *masks), sizes, most, 0)


def _draws_again(x: Tensor) -> bool:
    """Return whether what is drawn for a tensor can be drawn once more."""
    # Checkpoints set back the streams of these devices, but not while a CUDA graph is captured.
    set_back = x.device.type in ("cpu", "cuda", "xpu") and not capturing(x.device)
    return _fused.serves(x) or set_back


def _split(
    attend: Attend, tensors: Sequence[Tensor], sizes: Sequence[int], most: int, first: int
) -> Tensor:
    """Split the outermost of these axes, and the next, until a block has at most so many weights.

    ``sizes`` are those of the axes of the weights that are not split yet.
    """
    if math.prod(sizes) <= most or len(sizes) == 1:
        return _recomputed(attend, first, *tensors)
    axis, of_queries = -len(sizes), len(sizes) == 2
    step = max(1, most // math.prod(sizes[1:]))
    _, key, value, *_ = tensors
    parts = [_parts(x, axis, sizes[0], step) for x in tensors]
    if of_queries:  # where keys and values have an axis of their own
        parts[1:3] = itertools.repeat(key), itertools.repeat(value)
    rest = sizes[1:] if step == 1 else (step, *sizes[1:])
    outputs = [
        _split(attend, part, rest, most, first + start if of_queries else first)
        for start, *part in zip(range(0, sizes[0], step), *parts, strict=False)
    ]
    return torch.cat(outputs, dim=axis)


def _parts(x: Tensor, axis: int, size: int, step: int) -> Iterable[Tensor]:
    """Return the parts of a tensor, or again and again itself if it is to be broadcast."""
    if x.ndim < -axis or x.shape[axis] != size:
        return itertools.repeat(x)
    return x.split(step, axis)  # not narrow: the gradient of a split is put together once


def _recomputed(attend: Attend, first: int, *tensors: Tensor) -> Tensor:
    """Return the output of a block, and keep nothing but its inputs."""
    query = tensors[0]
    # A seed means the same in both passes, while a stream has to be set back.
    seed = _fused.draw_seed(query.device) if _fused.serves(query) else None
    if not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors)):
        return attend(seed, first, *tensors)
    output: Tensor = checkpoint(
        attend, seed, first, *tensors, use_reentrant=False, preserve_rng_state=seed is None
    )
    return output
