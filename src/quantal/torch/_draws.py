"""A draw: which cells of the tables the units of a call look up.

There are two kinds, and both keep little for the backward pass, which looks the same cells up
again: `UnitDraw` two bytes a unit, `SharedDraw` one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from quantal._process_lock import ProcessLock
from quantal.keys import Key
from quantal.torch._private_api import Code
from quantal.torch._product import casts_apart
from quantal.torch._random_bits import KeyOnDevice, Shape, TorchStream, source
from quantal.torch._tables import DeviceTables

__all__ = ["COUNTING", "Shape", "SharedDraw", "UnitDraw", "draw", "draw_by_key_in_graph"]

COUNTING = ProcessLock()
"""Held while the calls of a layer with a key are counted, so that no two threads draw the same."""


class UnitDraw(NamedTuple):
    """Each unit has a cell of its own, and the whole call one of the two rows.

    Attributes
    ----------
    cell : Tensor
        int16, with one axis: for a small array, a view costs as much as a pass over it.
    start : Tensor
        Where the row starts, one int32.
    shape : sequence of int
        The shape of the coefficients.
    """

    cell: Tensor
    start: Tensor
    shape: Shape

    def look_up(self, tables: DeviceTables, code: Code) -> Tensor:
        """Return the coefficients, a new tensor."""
        found = _select(tables.values, self.cell, self.start)
        # Not a view in eager code: users get it, and torch forbids to write into views that a
        # Function has returned.
        return found.resize_(self.shape) if code is Code.EAGER else found.view(self.shape)


class SharedDraw(NamedTuple):
    """Units share cells, each of which is a retain probability, and are kept or dropped one by one.

    Attributes
    ----------
    cell : Tensor
        int16, of the shape of the retain probabilities.
    keep : Tensor
        Boolean, of the shape of the coefficients.
    """

    cell: Tensor
    keep: Tensor

    def look_up(self, tables: DeviceTables, code: Code) -> Tensor:
        """Return the coefficients, a new tensor."""
        kept = _select(tables.values, self.cell.view(-1), tables.second)
        return torch.where(self.keep, kept.view(self.cell.shape), 0)


def draw(
    tables: DeviceTables,
    mask_shape: Shape,
    p_shape: Shape | None,
    integers: TorchStream | KeyOnDevice,
) -> UnitDraw | SharedDraw:
    """Draw by the plan of `quantal.keys`; ``p_shape`` is None if no probabilities are shared."""
    if p_shape is None:
        cell = integers.indices(mask_shape)
        second = integers.levels(()) < tables.thresholds
        return UnitDraw(cell, torch.where(second, tables.second, tables.first), mask_shape)
    cell = integers.shared_indices(p_shape)
    keep_below = _select(tables.thresholds, cell, tables.first).view(p_shape)
    return SharedDraw(cell.view(p_shape), integers.levels(mask_shape) < keep_below)


def _select(entries: Tensor, cell: Tensor, start: Tensor) -> Tensor:
    """Return the entries of int16 cells of the row that starts there."""
    # With an axis, so that the sum is int32: torch ignores the dtype of tensors without axes.
    index = cell.int().add_(start) if casts_apart(cell) else cell + start.view(1)
    # On CPUs, index_select with int32 is the fastest gather by far.
    return entries.index_select(0, index)


@torch.library.custom_op(
    "quantal::draw_by_key",
    mutates_args={"calls"},
    schema="(Tensor[] tables, SymInt[] mask_shape, SymInt[]? p_shape, SymInt word0, SymInt word1,"
    " Tensor(a!)? calls) -> (Tensor, Tensor)",
)
def draw_by_key_in_graph(
    tables: Sequence[Tensor],
    mask_shape: Shape,
    p_shape: Shape | None,
    word0: int,
    word1: int,
    calls: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Draw by a portable key or, given a count on the host, by that of a call, and count it.

    It is an operator, since torch's compiler cannot cope with the twenty rounds of Threefry. It
    returns the tensors of a draw.
    """
    key = Key(word0, word1)
    if calls is not None:
        with COUNTING():
            key = key.fold_in(int(calls))
            calls.add_(1)
    made = DeviceTables(*tables)
    cell, other, *_ = draw(made, mask_shape, p_shape, source(key, made.values.device, Code.EAGER))
    return cell, other


@draw_by_key_in_graph.register_fake
def _(
    tables: Sequence[Tensor], mask_shape: Shape, p_shape: Shape | None, *_: Any
) -> tuple[Tensor, Tensor]:
    cells, others = ((math.prod(mask_shape),), ()) if p_shape is None else (p_shape, mask_shape)
    kind, device = torch.int32 if p_shape is None else torch.bool, tables[0].device
    cell = torch.empty(cells, dtype=torch.int16, device=device)
    return cell, torch.empty(others, dtype=kind, device=device)
