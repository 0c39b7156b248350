"""The shapes in which coefficients are drawn: 2¹⁷ units, more or less, on one to five axes."""

from __future__ import annotations

import math

from quantal.conformance._subject import Shape

__all__ = ["BATCH", "FEW_UNITS", "SHAPES", "shape_for", "strides"]

BATCH = (32, 64, 64)
"""Samples, channels and time steps."""

FEW_UNITS = (5, 27)
"""A call that can be made many times; two masks of it are not alike by chance."""

# Odd sizes and even ones; thousands of samples; many axes.
SHAPES: tuple[Shape, ...] = (BATCH, (4099, 32), (131_071,), (16, 9, 28, 33), (4, 5, 12, 21, 26))


def shape_for(number: int, quick: bool) -> Shape:
    """Return the shape for the number-th law: all of them in turn, or one that is compiled once."""
    return BATCH if quick else SHAPES[number % len(SHAPES)]


def strides(shape: Shape) -> list[int]:
    """Return how many units apart neighbours are, along each axis."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
