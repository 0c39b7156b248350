"""The random integers behind the coefficients, from torch's streams or from a portable key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quantal.keys import Key, threefry2x32
from quantal.table import LEVELS
from quantal.torch.modes import transformed
from quantal.torch.tables import Tables

__all__ = ["Native", "Portable", "draw", "draw_by_key_in_graph", "portable"]

Shape = Sequence[int]


def draw(
    made: Tables, mask_shape: Shape, p_shape: Shape | None, source: Native | Portable
) -> tuple[Tensor, Tensor]:
    """Draw the cells and rows to look up, by the plan of `quantal.keys`.

    Returns
    -------
    cell, row
        Without ``p_shape``, each unit has a cell, int16, in one dimension, and the call a row,
        given by its start; with it, units share cells of that shape, and a boolean for each, of
        ``mask_shape``, says if its row is the second.
    """
    if p_shape is None:
        return source.indices(mask_shape), made.start(source.levels(()) < made.thresholds)
    cell = source.shared_indices(p_shape).view(tuple(p_shape))
    return cell, source.levels(mask_shape) < made.threshold(cell).view(cell.shape)


class Native:
    """Integers from a generator, or from torch's own stream of the device."""

    def __init__(self, generator: torch.Generator | None, device: torch.device) -> None:
        self.device = device
        # The compiler does not know the argument, even if it is None.
        self.source: dict[str, Any] = {} if generator is None else {"generator": generator}

    def levels(self, shape: Shape) -> Tensor:
        """Return integers out of range(LEVELS)."""
        count = math.prod(shape)
        if count == 1 or not self._whole_words():
            return self._randint(0, LEVELS, tuple(shape), torch.int32)
        words = self._words(-(-count // 2)).view(torch.int32)
        return words[:count].view(tuple(shape)).bitwise_and_(LEVELS - 1)

    def indices(self, shape: Shape) -> Tensor:
        """Return 16 random bits an element, in one dimension: a number of 64 bits serves four."""
        count = math.prod(shape)
        cells = self._words(-(-count // 4)).view(torch.int16)
        # A graph serves sizes that are multiples of four, and others.
        return cells.narrow(0, 0, count) if torch.compiler.is_compiling() or count % 4 else cells

    shared_indices = indices

    def _words(self, count: int) -> Tensor:
        """Return random numbers of 64 bits."""
        if self._whole_words():
            words = torch.empty(count, dtype=torch.int64, device=self.device)
            return words.random_(-(2**63), None, **self.source)
        # One in 2⁶⁴ numbers is left out, since the end of the range must be a number too.
        return self._randint(-(2**63), 2**63 - 1, (count,), torch.int64)

    def _whole_words(self) -> bool:
        """Whether numbers of all 64 bits are at hand: twice as fast, as there is no division.

        On other devices they are no faster, and compiler and transforms want randint.
        """
        return self.device.type == "cpu" and not transformed()

    def _randint(self, low: int, high: int, shape: tuple[int, ...], kind: torch.dtype) -> Tensor:
        return torch.randint(low, high, shape, dtype=kind, device=self.device, **self.source)


class Portable:
    """Integers from a portable key: those of `quantal.keys`, bit for bit."""

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


def portable(key: Key, device: torch.device) -> Portable:
    """Return the integers of a key on a device."""
    # Under a dispatch mode (FakeTensorMode, say) what NumPy makes is of the wrong kind.
    by_numpy = device.type == "cpu" and not torch._C._len_torch_dispatch_stack()
    return (_PortableOnCPU if by_numpy else Portable)(key, device)


def _rotate(x: Tensor, places: int) -> Tensor:
    return (x << places) | ((x >> (32 - places)) & (2**places - 1))


@torch.library.custom_op(
    "quantal::draw_by_key",
    mutates_args={"calls"},
    schema="(Tensor[] made, SymInt[] mask_shape, SymInt[]? p_shape, SymInt word0, SymInt word1,"
    " Tensor(a!)? calls) -> (Tensor, Tensor)",
)
def draw_by_key_in_graph(
    made: Sequence[Tensor],
    mask_shape: Shape,
    p_shape: Shape | None,
    word0: int,
    word1: int,
    calls: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Draw by a portable key or, given a count on the host, by that of a call, and count it.

    An operator, since torch's compiler does not survive the twenty rounds of Threefry.
    """
    key = Key(word0, word1)
    if calls is not None:
        key = key.fold_in(int(calls))
        calls.add_(1)
    tables = Tables(*made)
    return draw(tables, mask_shape, p_shape, portable(key, tables.values.device))


@draw_by_key_in_graph.register_fake
def _(
    made: Sequence[Tensor], mask_shape: Shape, p_shape: Shape | None, *_: Any
) -> tuple[Tensor, Tensor]:
    cells, rows = ((math.prod(mask_shape),), ()) if p_shape is None else (p_shape, mask_shape)
    kind, device = torch.int32 if p_shape is None else torch.bool, made[0].device
    cell = torch.empty(cells, dtype=torch.int16, device=device)
    return cell, torch.empty(rows, dtype=kind, device=device)
