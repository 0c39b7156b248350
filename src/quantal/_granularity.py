"""Granularity: which units share a coefficient, and which share only a retain probability."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence

from quantal._errors import wrong_type, wrong_value

__all__ = ["Axes", "coefficient_shapes"]

Axes = int | Sequence[int]


def coefficient_shapes(
    shape: Sequence[int], broadcast_dims: Axes = (), p_broadcast_dims: Axes = ()
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the shape of the coefficients and, if they are coarser, that of the probabilities.

    Parameters
    ----------
    shape : sequence of int
        The shape of the input.
    broadcast_dims : int or sequence of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : int or sequence of int
        Axes along which only the retain probability is shared.

    Returns
    -------
    mask_shape, p_shape
        Both broadcast against ``shape``; ``p_shape`` is None where every mask has its own p.

    Examples
    --------
    >>> coefficient_shapes((8, 3, 5, 5), broadcast_dims=(2, 3))
    ((8, 3, 1, 1), None)
    >>> coefficient_shapes((8, 16), p_broadcast_dims=0)
    ((8, 16), (1, 16))
    """
    if broadcast_dims == () == p_broadcast_dims:  # by far the most common, and called in each step
        return tuple(shape), None
    shared = _axes("broadcast_dims", broadcast_dims, len(shape))
    mask_shape = tuple(1 if axis in shared else size for axis, size in enumerate(shape))
    p_shared = _axes("p_broadcast_dims", p_broadcast_dims, len(shape))
    if not p_shared:
        return mask_shape, None
    return mask_shape, tuple(1 if axis in p_shared else n for axis, n in enumerate(mask_shape))


def _axes(name: str, axes: Axes, ndim: int) -> frozenset[int]:
    """Return the axes counted from the front; each must exist and be named once."""
    expected = f"distinct axes of an array with {ndim} dimensions"
    try:
        listed = [operator.index(a) for a in (axes if isinstance(axes, Iterable) else (axes,))]
    except TypeError:
        raise wrong_type(name, expected, axes) from None
    counted = frozenset(axis % ndim for axis in listed if -ndim <= axis < ndim)
    if len(counted) < len(listed):
        raise wrong_value(name, expected, axes)
    return counted
