"""The random integers behind the coefficients, from torch's streams or from a portable key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from quantal.keys import Key
from quantal.table import LEVELS
from quantal.torch._portable_bits import Portable, portable
from quantal.torch._private_api import transformed
from quantal.torch._tables import Tables

__all__ = ["Native", "draw", "draw_by_key_in_graph"]

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
