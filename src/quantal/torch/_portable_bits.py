"""The random integers of a portable key: those of `quantal.keys`, bit for bit, on any device."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from quantal.keys import Key, threefry2x32
from quantal.table import LEVELS

__all__ = ["Portable", "portable"]

Shape = Sequence[int]


def portable(key: Key, device: torch.device) -> Portable:
    """Return the integers of a key on a device."""
    # Under a dispatch mode (FakeTensorMode, say) what NumPy makes is of the wrong kind.
    by_numpy = device.type == "cpu" and not torch._C._len_torch_dispatch_stack()
    return (_PortableOnCPU if by_numpy else Portable)(key, device)


class Portable:
    """Integers by torch, on the device where they are needed."""

    def __init__(self, key: Key, device: torch.device) -> None:
        self.own, self.shared, self.call = key.split(3)
        self.device = device

    def levels(self, shape: Shape) -> Tensor:
        """Return integers out of range(LEVELS); those of the call for the shape ()."""
        if not shape:
            return torch.full((), self.call.level(), dtype=torch.int32, device=self.device)
        word0, word1 = self._blocks(self.own, math.prod(shape))
        # The shift copies the sign, so what it brings in is masked; likewise in `_rotate`.
        return (((word0 ^ word1) >> 2) & (LEVELS - 1)).view(tuple(shape))

    def indices(self, shape: Shape) -> Tensor:
        """Return 16 random bits an element, in one dimension."""
        return self._indices(self.own, shape)

    def shared_indices(self, shape: Shape) -> Tensor:
        """Return 16 random bits an element, independent of `indices`."""
        return self._indices(self.shared, shape)

    def _indices(self, key: Key, shape: Shape) -> Tensor:
        *rows, last = shape or (1,)
        per_row = -(-last // 4)
        # Seen as 16-bit numbers, a word is its low half and then its high half.
        words = torch.stack(self._blocks(key, math.prod(rows) * per_row), dim=-1)
        padded = words.view(torch.int16).view(*rows, 4 * per_row)
        return padded[..., :last].reshape(-1).contiguous()

    def _blocks(self, key: Key, count: int) -> tuple[Tensor, Tensor]:
        """Return the ciphers of the 64-bit counters from 0: two int32 words each."""
        # Signed words of the same bits, and filled, not copied, so that no device waits.
        signed = ((word ^ 2**31) - 2**31 for word in (key.word0, key.word1))
        own = tuple(torch.full((1,), w, dtype=torch.int32, device=self.device) for w in signed)
        counter = torch.arange(count, device=self.device)
        return threefry2x32(own, ((counter >> 32).int(), counter.int()), _rotate)


class _PortableOnCPU(Portable):
    """The same from NumPy, whose one thread is faster than torch's hundred operations on two."""

    def levels(self, shape: Shape) -> Tensor:
        return torch.from_numpy(self.own.levels(tuple(shape))) if shape else super().levels(shape)

    def _indices(self, key: Key, shape: Shape) -> Tensor:
        return torch.from_numpy(key.indices(tuple(shape)).view(np.int16).reshape(-1))


def _rotate(x: Tensor, places: int) -> Tensor:
    return (x << places) | ((x >> (32 - places)) & (2**places - 1))
