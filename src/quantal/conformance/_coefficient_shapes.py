"""The shapes that a port draws its coefficients in."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

from quantal import _granularity
from quantal._arguments import shape as checked_shape
from quantal._errors import wrong_type
from quantal._granularity import Axes

__all__ = ["coefficient_shapes"]


def coefficient_shapes(
    shape: Sequence[int], broadcast_dims: Axes = (), p_broadcast_dims: Axes = ()
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Return the shape of the coefficients and, if they are coarser, that of the probabilities.

    Parameters
    ----------
    shape : sequence of int
        The shape of the input; sizes may be symbols of a compiler.
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
    try:
        listed = list(shape) if isinstance(shape, tuple | list) else []
    except Exception:  # what somebody's own class raises
        raise wrong_type("shape", "a sequence of sizes", shape) from None
    if all(isinstance(size, numbers.Integral) for size in listed):
        shape = checked_shape("shape", shape)
    elif not all(_may_be_a_symbol(size) for size in listed):
        raise wrong_type("shape", "a sequence of sizes", shape)
    return _granularity.coefficient_shapes(shape, broadcast_dims, p_broadcast_dims)


def _may_be_a_symbol(size: Any) -> bool:
    # They are subtracted and multiplied, and so are other numbers, which no size may be.
    no_size = isinstance(size, numbers.Number) and not isinstance(size, numbers.Integral)
    return hasattr(type(size), "__sub__") and hasattr(type(size), "__rmul__") and not no_size
