"""Does a stream ever repeat itself? No right one does, so chance plays no part in the answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["repeated_window", "window_width"]

_RARE = 64  # a repetition by chance is rarer than 2⁻⁶⁴


def window_width(most: float, length: int) -> int:
    """Return how many values in a row no right stream repeats, as a power of two.

    Parameters
    ----------
    most : float
        The probability of the most frequent value, which bounds that of any coincidence.
    length : int
        The length of the stream.
    """
    bits = _RARE + 2 * math.log2(max(length, 2))
    return int(2 ** math.ceil(math.log2(bits / -math.log2(most))))


def repeated_window(values: NDArray[Any], width: int) -> tuple[int, int] | None:
    """Return two places where the same ``width`` values stand, or None.

    Examples
    --------
    >>> stream = np.random.default_rng(0).random(1000)
    >>> stream[700:764] = stream[100:164]
    >>> repeated_window(stream, 64), repeated_window(stream, 128)
    ((100, 700), None)
    """
    if len(values) <= width:
        return None
    hashes = _window_hashes(values, width)
    ordered = np.sort(hashes)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return None
    # Two windows may share a hash by chance, so they are compared.
    places = np.flatnonzero(np.isin(hashes, twice[:1000]))
    for value in twice[:1000]:
        first, *others = places[hashes[places] == value]
        for other in others:
            if np.array_equal(values[first : first + width], values[other : other + width]):
                return int(first), int(other)
    return None


def _window_hashes(values: NDArray[Any], width: int) -> NDArray[np.uint64]:
    """Return a hash for each window of ``width`` values, a power of two."""
    words = np.ascontiguousarray(values, np.float64).view(np.uint64)
    factors = np.random.default_rng(0).integers(2**63, size=64, dtype=np.uint64) * 2 + 1
    hashes = words * factors[-1]
    hashes ^= hashes >> np.uint64(29)
    hashes *= factors[-2]
    for level in range(width.bit_length() - 1):
        half = 2**level
        hashes = hashes[:-half] * factors[level] + hashes[half:]
        hashes ^= hashes >> np.uint64(31)
    return np.asarray(hashes)
