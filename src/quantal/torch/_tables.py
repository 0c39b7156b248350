"""The tables of `quantal.table` as tensors on a device."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantal.dilution import Dilution
from quantal.keys import CELLS
from quantal.table import shared_table, table
from quantal.torch._private_api import modes_active
from quantal.torch._self_check import usable

__all__ = ["DeviceTables", "tables", "tables_in_graph"]

# torch has no 16-bit indices but signed ones, so each row of a table starts at cell -32768.
_FIRST = CELLS // 2


class DeviceTables(NamedTuple):
    """What a law looks up; plain tensors, so that a compiled graph takes them as inputs.

    Attributes
    ----------
    values : Tensor
        Two rows of coefficients in one, float32. Where retain probabilities are shared, the first
        row is of zeros: the units that are dropped.
    thresholds : Tensor
        The levels, int32, below which the second row is used: one number for a whole call or,
        where retain probabilities are shared, one for each cell.
    first, second : Tensor
        Where the rows start, int32. They are the same numbers for every law, but torch would make
        tensors of numbers in each call.
    """

    values: Tensor
    thresholds: Tensor
    first: Tensor
    second: Tensor

    def to(self, device: torch.device) -> DeviceTables:
        """Return the same tables on a device."""
        return DeviceTables(*(part.to(device) for part in self))


def tables(law: Dilution, shared: bool, device: torch.device) -> DeviceTables:
    """Return the tables of a law on a device, for shared retain probabilities or ordinary units."""
    # What is made under a dispatch mode (FakeTensorMode, say) is only good there: never keep it.
    return (_make if modes_active() else _keep)(law, shared, device)


def _make(law: Dilution, shared: bool, device: torch.device) -> DeviceTables:
    if shared:
        drawn = shared_table(law)
        thresholds = np.roll(drawn.keep_below, _FIRST)
        values = np.stack([np.zeros_like(drawn.values), drawn.values])  # dropped, kept
    else:
        thresholds, values = np.array(table(law).threshold, np.int32), table(law).values
    values = np.roll(values, _FIRST, axis=1).reshape(-1)
    starts = (np.array(start, np.int32) for start in (_FIRST, CELLS + _FIRST))
    with torch.inference_mode(False):  # they may serve in training next
        return DeviceTables(*map(torch.from_numpy, (values, thresholds, *starts))).to(device)


@functools.lru_cache(maxsize=64)
def _keep(law: Dilution, shared: bool, device: torch.device) -> DeviceTables:
    usable(device)  # tries the kernels now: the first draw may be captured in a graph
    return _make(law, shared, device)


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
