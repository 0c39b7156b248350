"""Granularity: which units share a coefficient, and which share only a retain probability."""

from __future__ import annotations

from collections.abc import Sequence

from quantal._arguments import axes

__all__ = ["Axes", "coefficient_shapes"]

Axes = int | Sequence[int]


def coefficient_shapes(
    shape: Sequence[int], broadcast_dims: Axes = (), p_broadcast_dims: Axes = ()
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return what `quantal.conformance.coefficient_shapes` returns; the shape is not checked.

    Examples
    --------
    >>> coefficient_shapes((8, 3, 5), broadcast_dims=2, p_broadcast_dims=0)
    ((8, 3, 1), (1, 3, 1))
    """
    if _is_empty(broadcast_dims) and _is_empty(p_broadcast_dims):  # nearly always, in each step
        return tuple(shape), None
    shared = axes("broadcast_dims", broadcast_dims, len(shape))
    mask_shape = tuple(1 if axis in shared else size for axis, size in enumerate(shape))
    p_shared = axes("p_broadcast_dims", p_broadcast_dims, len(shape))
    if not p_shared:
        return mask_shape, None
    return mask_shape, tuple(1 if axis in p_shared else n for axis, n in enumerate(mask_shape))


def _is_empty(axes: Axes) -> bool:
    return type(axes) is tuple and not axes  # not ==, which compares the elements of an array
