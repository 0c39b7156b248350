"""Granularity: which units share a coefficient, and which share only a retain probability."""

from __future__ import annotations

from collections.abc import Sequence

from quantal._arguments import axes

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
    if _is_empty(broadcast_dims) and _is_empty(p_broadcast_dims):  # the most common, in each step
        return tuple(shape), None
    shared = axes("broadcast_dims", broadcast_dims, len(shape))
    mask_shape = tuple(1 if axis in shared else size for axis, size in enumerate(shape))
    p_shared = axes("p_broadcast_dims", p_broadcast_dims, len(shape))
    if not p_shared:
        return mask_shape, None
    return mask_shape, tuple(1 if axis in p_shared else n for axis, n in enumerate(mask_shape))


def _is_empty(axes: Axes) -> bool:
    return isinstance(axes, tuple) and not axes  # not ==, which is many answers for an array
