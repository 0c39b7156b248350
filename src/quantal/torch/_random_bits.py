"""The random integers behind the coefficients, from torch's streams or from a portable key.

Three sources, with the same three methods: `TorchStream`, `KeyOnDevice` and `KeyOnCPU`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantal.keys import CELLS, LEVELS, Key, threefry2x32
from quantal.torch._private_api import Code

__all__ = ["LOWEST", "KeyOnCPU", "KeyOnDevice", "Shape", "TorchStream", "source"]

Shape = Sequence[int]
LOWEST = -(2**63)
"""The lowest number of 64 bits: from here on up, all of them are drawn."""
# Devices on which all bits of a 64-bit integer are random. On Apple's only 32 are, and the others
# copy the sign; of further devices nothing is known.
_WHOLE_WORDS = {"cpu", "cuda", "xpu"}


def source(
    generator: torch.Generator | Key | None, device: torch.device, code: Code
) -> TorchStream | KeyOnDevice:
    """Return the random integers of a generator, a key or torch's own stream on a device."""
    if not isinstance(generator, Key):
        return TorchStream(generator, device, code)
    by_numpy = device.type == "cpu" and code is Code.EAGER
    return (KeyOnCPU if by_numpy else KeyOnDevice)(generator, device)


class TorchStream:
    """Integers from a generator, or from torch's own stream of the device.

    Eager and other code draws the same integers from a stream in the same state.
    """

    def __init__(self, generator: torch.Generator | None, device: torch.device, code: Code) -> None:
        self.device = device
        self.on_cpu = device.type == "cpu"
        self.code = code
        # The compiler does not know the argument, even if it is None.
        self.options: dict[str, Any] = {} if generator is None else {"generator": generator}

    def levels(self, shape: Shape) -> Tensor:
        """Return integers out of range(LEVELS)."""
        count = math.prod(shape)
        if count == 1 or not self.on_cpu:
            return self._randint(0, LEVELS, tuple(shape), torch.int32)
        words = self._words(-(-count // 2)).view(torch.int32)
        return words[:count].view(tuple(shape)).bitwise_and_(LEVELS - 1)

    def indices(self, shape: Shape) -> Tensor:
        """Return 16 random bits an element, in one dimension: a number of 64 bits serves four."""
        count = math.prod(shape)
        if self.device.type not in _WHOLE_WORDS:
            return self._randint(-CELLS // 2, CELLS // 2, (count,), torch.int16)
        cells = self._words(-(-count // 4)).view(torch.int16)
        # A graph serves sizes that are multiples of four, and others.
        return cells.narrow(0, 0, count) if self.code is Code.COMPILED or count % 4 else cells

    shared_indices = indices

    def _words(self, count: int) -> Tensor:
        """Return random numbers of 64 bits."""
        if self.on_cpu and self.code is Code.EAGER:
            # Twice as fast as randint, as there is no division.
            words = torch.empty(count, dtype=torch.int64)
            return words.random_(LOWEST, None, **self.options)
        # One in 2⁶⁴ numbers is left out, since the end of the range must be a number too.
        words = self._randint(LOWEST, 2**63 - 1, (count,), torch.int64)
        # On CPUs, all but the sign is as above.
        return words ^ LOWEST if self.on_cpu else words

    def _randint(self, low: int, high: int, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
        return torch.randint(low, high, shape, dtype=kind, device=self.device, **self.options)


class KeyOnDevice:
    """The integers of a portable key: those of `quantal.keys`, bit for bit, on any device."""

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
        word0, word1 = (torch.full((1,), w, dtype=torch.int32, device=self.device) for w in signed)
        counter = torch.arange(count, device=self.device)
        counters = (counter >> 32).int(), counter.int()
        # By its name: torch.func.functionalize does not know the operator ^=.
        return threefry2x32((word0, word1), counters, _rotate, torch.Tensor.bitwise_xor_)


class KeyOnCPU(KeyOnDevice):
    """The same by NumPy: one thread of it is faster than a hundred operations of torch on two."""

    def levels(self, shape: Shape) -> Tensor:
        """Return integers out of range(LEVELS); those of the call for the shape ()."""
        return torch.from_numpy(self.own.levels(tuple(shape))) if shape else super().levels(shape)

    def _indices(self, key: Key, shape: Shape) -> Tensor:
        return torch.from_numpy(key.indices(tuple(shape)).view(np.int16).reshape(-1))


def _rotate(x: Tensor, places: int) -> Tensor:
    return (x << places) | ((x >> (32 - places)) & (2**places - 1))
