"""Tensors that are not plain grids of numbers, and tracers that record what is done to them.

Their random integers come from ``randint_like``. So each kind of tensor draws by its own rules, as
a DTensor, which keeps the streams of its ranks apart or alike; and recorded graphs serve any shape.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from quantal._errors import wrong_value
from quantal._granularity import Axes
from quantal.keys import CELLS, LEVELS, Key
from quantal.torch._draws import Shape, draw
from quantal.torch._private_api import Code, mode_to_enter, ragged_axis
from quantal.torch._random_bits import source
from quantal.torch._tables import DeviceTables

__all__ = [
    "coefficients_like",
    "dilute_special",
    "distributed_by_key",
    "is_distributed",
    "is_special",
]


def coefficients_like(
    x: Tensor, tables: DeviceTables, mask_shape: Shape, p_shape: Shape | None
) -> Tensor:
    """Draw coefficients for a tensor of any kind, from torch's own stream."""
    units = _narrowed(x, mask_shape)
    levels = torch.randint_like(units, 0, LEVELS, dtype=torch.int32)
    shared = None if p_shape is None else _narrowed(x, p_shape)
    cells = torch.randint_like(units if shared is None else shared, 0, CELLS, dtype=torch.int32)
    if not is_distributed(x):
        return _look_up(tables, cells, levels, shared is not None)
    here: Any = levels
    there: Any = cells
    kind: Any = type(x)
    c = _look_up(tables, there.to_local(), here.to_local(), shared is not None)
    return kind.from_local(
        c, here.device_mesh, here.placements, shape=here.shape, stride=here.stride()
    )


def _look_up(tables: DeviceTables, cells: Tensor, levels: Tensor, shared: bool) -> Tensor:
    """Return the coefficients of cells, counted from 0; each unit chooses its row by itself."""
    if not shared:
        return _entries(tables.values, cells + CELLS * (levels < tables.thresholds))
    keep = levels < _entries(tables.thresholds, cells)
    return torch.where(keep, _entries(tables.values, cells + CELLS), 0)


def _entries(entries: Tensor, index: Tensor) -> Tensor:
    return entries.index_select(0, index.flatten()).view_as(index)


def _narrowed(x: Tensor, shape: Shape) -> Tensor:
    """Return a part of x that has this shape, where ones are the axes that share something."""
    for axis, size in enumerate(shape):
        if isinstance(size, int) and size == 1:  # a size of x itself may be a symbol
            x = x.narrow(axis, 0, 1)
    return x


def is_distributed(x: Tensor) -> bool:
    """Return whether a tensor is a DTensor, whose parts are on several ranks."""
    module: Any = sys.modules.get("torch.distributed.tensor")  # slow to load: not if nobody has
    return module is not None and isinstance(x, module.DTensor)


def distributed_by_key(
    x: Any, tables: DeviceTables, mask_shape: Shape, p_shape: Shape | None, key: Key
) -> Tensor:
    """Return the coefficients of a key for a DTensor: each rank has its part of those of the whole.

    Every rank draws all of them, so that nothing has to be sent.
    """
    from torch.distributed.tensor import Replicate, distribute_tensor

    whole = draw(tables, mask_shape, p_shape, source(key, x.device, Code.TRANSFORMED))
    c = whole.look_up(tables, Code.TRANSFORMED)
    # Partial sums are added up before the product, and axes that share a coefficient are not cut.
    cut = [
        place if place.is_shard() and mask_shape[place.dim] > 1 else Replicate()
        for place in x.placements
    ]
    return distribute_tensor(c, x.device_mesh, cut, src_data_rank=None)


def is_special(x: Tensor, code: Code) -> bool:
    """Return whether a tensor is one for `dilute_special`."""
    return x.is_nested or (code is Code.TRANSFORMED and mode_to_enter(x) is not None)


def dilute_special(
    x: Tensor,
    dilute: Callable[[Tensor], Tensor],
    broadcast_dims: Axes,
    p_broadcast_dims: Axes,
    inplace: bool,
) -> Tensor:
    """Dilute a fake tensor in its own mode, or the units of a nested one, all in one call."""
    if not x.is_nested:
        with mode_to_enter(x):
            return dilute(x)
    for name, axes in (
        ("broadcast_dims", broadcast_dims),
        ("p_broadcast_dims", p_broadcast_dims),
    ):
        if axes != ():
            raise wrong_value(name, "() for a nested tensor, whose axes differ", axes)
    if x.layout == torch.jagged:
        jagged: Any = x
        values = dilute(jagged.values())
        y = torch.nested.nested_tensor_from_jagged(
            values, jagged.offsets(), jagged.lengths(), jagged_dim=ragged_axis(x)
        )
    else:
        parts = x.unbind()
        flat = dilute(torch.cat([part.reshape(-1) for part in parts]))
        pieces = zip(flat.split([part.numel() for part in parts]), parts, strict=True)
        y = torch.nested.as_nested_tensor([piece.view(part.shape) for piece, part in pieces])
    return x.copy_(y) if inplace else y
