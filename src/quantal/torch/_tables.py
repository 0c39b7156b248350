"""The tables of `quantal.table` as tensors on a device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantal.dilution import Dilution
from quantal.table import CELLS, shared_table, table

__all__ = ["Tables", "tables", "tables_in_graph"]

# torch has no 16-bit indices but signed ones, so each row of a table starts at cell -32768.
_FIRST = CELLS // 2


class Tables(NamedTuple):
    """What a law looks up; plain tensors, so that a compiled graph takes them as inputs.

    Attributes
    ----------
    values : Tensor
        Two rows of coefficients in one, float32.
    thresholds : Tensor
        The levels, int32, below which the second row is used: one number for a whole call or,
        where retain probabilities are shared, one for each cell.
    first, second : Tensor
        Where the rows start, int32: numbers, but torch would make them tensors in every call.
    """

    values: Tensor
    thresholds: Tensor
    first: Tensor
    second: Tensor

    def start(self, is_second: Tensor) -> Tensor:
        """Return where a row starts, given whether it is the second."""
        return torch.where(is_second, self.second, self.first)

    def look_up(self, cell: Tensor, row: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the values of int16 cells, in that shape.

        ``row`` is the `start` of the row of all cells, which then have one dimension (to a small
        array, a view costs as much as a pass over it); or, where units share cells, a boolean for
        each of them: the values of the first row are all 0 then.
        """
        if row.ndim:
            kept = _select(self.values, cell.view(-1).int().add_(self.second)).view(cell.shape)
            return torch.where(row, kept, 0)
        return _select(self.values, cell.int().add_(row)).view(shape)

    def threshold(self, cell: Tensor) -> Tensor:
        """Return the thresholds of int16 cells, in one dimension."""
        return _select(self.thresholds, cell.view(-1).int().add_(self.first))


def _select(entries: Tensor, index: Tensor) -> Tensor:
    # On CPUs, index_select with int32 is the fastest gather by far.
    return entries.index_select(0, index)


def tables(law: Dilution, shared: bool, device: torch.device) -> Tables:
    """Return the tables of a law on a device, for shared retain probabilities or ordinary units."""
    # What is made under a dispatch mode (FakeTensorMode, say) is only good there: never keep it.
    make = _tables.__wrapped__ if torch._C._len_torch_dispatch_stack() else _tables
    return make(law, shared, device)


@functools.lru_cache(maxsize=64)
def _tables(law: Dilution, shared: bool, device: torch.device) -> Tables:
    if shared:
        drawn = shared_table(law)
        thresholds = np.roll(drawn.keep_below, _FIRST)
        values = np.stack([np.zeros_like(drawn.values), drawn.values])  # dropped, kept
    else:
        thresholds, values = np.array(table(law).threshold, np.int32), table(law).values
    values = np.roll(values, _FIRST, axis=1).reshape(-1)
    with torch.inference_mode(False):  # they may serve in training next
        parts = (values, thresholds, *(np.array(n, np.int32) for n in (_FIRST, CELLS + _FIRST)))
        return Tables(*(torch.from_numpy(part).to(device) for part in parts))


@torch.library.custom_op(
    "quantal::tables",
    mutates_args=(),
    schema="(float rate, float alpha, str vary, bool unit_mean, bool shared, Device device)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
)
def tables_in_graph(
    rate: float, alpha: float, vary: str, unit_mean: bool, shared: bool, device: torch.device
) -> tuple[Tensor, ...]:
    """Return the tables from within a compiled graph, in which SciPy cannot be traced."""
    law = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)  # type: ignore[arg-type]
    # A graph may overwrite what it is given.
    return tuple(part.clone() for part in tables(law, shared, device))


@tables_in_graph.register_fake
def _(
    rate: float, alpha: float, vary: str, unit_mean: bool, shared: bool, device: torch.device
) -> tuple[Tensor, ...]:
    values = torch.empty(2 * CELLS, dtype=torch.float32, device=device)
    shapes: tuple[tuple[int, ...], ...] = ((CELLS,) if shared else (), (), ())
    return values, *(torch.empty(shape, dtype=torch.int32, device=device) for shape in shapes)
