"""The tables of `quantal.table` as tensors on a device."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantal.dilution import Dilution
from quantal.table import CELLS, shared_table, table

__all__ = ["Tables", "look_up", "start", "tables", "tables_in_graph"]

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
    """

    values: Tensor
    thresholds: Tensor


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
        return Tables(*(torch.from_numpy(part).to(device) for part in (values, thresholds)))


def start(second: Tensor) -> Tensor:
    """Return where a row of the values starts, given whether it is the second."""
    return torch.where(second, CELLS + _FIRST, _FIRST)


def look_up(entries: Tensor, cell: Tensor, row: Tensor | int = _FIRST) -> Tensor:
    """Return the entries of int16 cells in a row, given its `start`, or a boolean for each unit."""
    index = cell.int()
    if isinstance(row, int) or not row.ndim:
        index.add_(row)
    else:
        index = index + start(row)
    # On CPUs, index_select with int32 is the fastest gather by far.
    return entries.index_select(0, index.view(-1)).view(index.shape)


@torch.library.custom_op(
    "quantal::tables",
    mutates_args=(),
    schema="(float rate, float alpha, str vary, bool unit_mean, bool shared, Device device)"
    " -> (Tensor, Tensor)",
)
def tables_in_graph(
    rate: float, alpha: float, vary: str, unit_mean: bool, shared: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the tables from within a compiled graph, in which SciPy cannot be traced."""
    law = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)  # type: ignore[arg-type]
    values, thresholds = tables(law, shared, device)
    return values.clone(), thresholds.clone()  # a graph may overwrite what it is given


@tables_in_graph.register_fake
def _(
    rate: float, alpha: float, vary: str, unit_mean: bool, shared: bool, device: torch.device
) -> tuple[Tensor, Tensor]:
    thresholds = torch.empty((CELLS,) if shared else (), dtype=torch.int32, device=device)
    return torch.empty(2 * CELLS, dtype=torch.float32, device=device), thresholds
