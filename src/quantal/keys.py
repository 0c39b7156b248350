"""Portable keys: the same key gives the same coefficients in every framework.

A key is a Threefry-2x32 key, equal to ``jax.random.key(seed)`` bit for bit, and so are its
``fold_in``, ``split`` and ``bits`` (JAX's default, partitionable layout). All of them are one
function of a 64-bit counter: element i of an array is the cipher of i, whatever device, shard or
compiler computes it.

What ``dilute`` draws from a key is fixed here too, and every adapter follows it:

1. ``own, shared, call = key.split(3)``
2. Ordinary units: ``own.indices(mask_shape)`` look up row ``call.level() < threshold`` of the
   ``Table``.
3. Shared retain probabilities: ``shared.indices(p_shape)`` look up the ``SharedTable``, and
   ``own.levels(mask_shape)`` are compared with its thresholds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantal._arguments import integer
from quantal._arguments import shape as checked_shape
from quantal._errors import wrong_type

__all__ = ["CELLS", "LEVELS", "Key", "key", "threefry2x32"]

CELLS = 2**16
"""The number of cells of a table: 16 random bits choose one."""

LEVELS = 2**30
"""Thresholds are compared with levels, integers drawn from range(LEVELS), which fit an int32."""

_Shape = int | tuple[int, ...]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = 0xFFFFFFFF
_CHUNK = 2**15  # blocks enciphered at a time, so that the twenty rounds stay in the cache


def threefry2x32(
    key: tuple[Any, Any],
    counter: tuple[Any, Any],
    rotate: Callable[[Any, int], Any],
    xor: Callable[[Any, Any], Any] = operator.ixor,
) -> tuple[Any, Any]:
    """Encipher pairs of 32-bit words: the Threefry-2x32 block function of twenty rounds.

    Parameters
    ----------
    key, counter : pair of arrays
        Integer arrays of 32 bits of any framework, signed or not, whose ``+`` wraps around.
    rotate : callable
        ``rotate(x, n)`` turns the bits of x left by n places.
    xor : callable, optional
        ``xor(x, y)`` returns the bits in which x and y differ; it may write them into x.
    """
    try:
        return _twenty_rounds(key, counter, rotate, xor)
    except Exception:  # looked into only now: to check first takes time in each draw
        _check_words("key", key)
        _check_words("counter", counter)
        if not callable(rotate):
            raise wrong_type("rotate", "a function of words and places", rotate) from None
        if not callable(xor):
            raise wrong_type("xor", "a function of two words", xor) from None
        raise


def _twenty_rounds(
    key: tuple[Any, Any],
    counter: tuple[Any, Any],
    rotate: Callable[[Any, int], Any],
    xor: Callable[[Any, Any], Any],
) -> tuple[Any, Any]:
    (key0, key1), (x0, x1) = key, counter
    schedule = (key0, key1, key0 ^ key1 ^ _PARITY)
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    # In place from here on, where the framework's arrays can be changed.
    for group in range(1, 6):
        for places in _ROTATIONS[(group - 1) % 2]:
            x0 += x1
            x1 = xor(rotate(x1, places), x0)
        x0 += schedule[group % 3]
        x1 += schedule[(group + 1) % 3] + group
    return x0, x1


def _check_words(name: str, pair: Any) -> None:
    try:
        word0, word1 = pair
        word0 ^ word1 ^ _PARITY  # which narrower numbers cannot hold
    except Exception:  # of whatever it is
        raise wrong_type(name, "a pair of arrays of 32-bit integers", pair) from None


def _rotate(x: NDArray[np.uint32], places: int) -> NDArray[np.uint32]:
    turned = x << np.uint32(places)
    turned |= x >> np.uint32(32 - places)
    return turned


def _rotate_integer(x: int, places: int) -> int:
    # Sums of Python's integers do not wrap, but what they carry beyond 32 bits goes nowhere: only
    # a rotation could bring it back.
    x &= _WORD
    return (x << places) | (x >> (32 - places))


def _integer(name: str, value: Any, bits: int) -> int:
    return integer(name, value, f"an integer in [0, 2**{bits})", 0, 2**bits)


def key(seed: int) -> Key:
    """Return the portable key of a seed, an integer in [0, 2⁶⁴).

    It equals ``jax.random.key(seed)``; for seeds above 2³² that needs JAX's 64-bit mode.

    Examples
    --------
    >>> key(0).fold_in(7).bits(2)
    array([2040308410,  309011329], dtype=uint32)
    """
    seed = _integer("seed", seed, 64)
    return Key(seed >> 32, seed & _WORD)


@dataclass(frozen=True)
class Key:
    """A Threefry-2x32 key of two 32-bit words; made by `quantal.key`.

    Examples
    --------
    >>> key(7).fold_in(1) == key(7).fold_in(1), key(7).fold_in(1) == key(7).fold_in(2)
    (True, False)
    """

    word0: int
    word1: int

    def __post_init__(self) -> None:
        for name in ("word0", "word1"):
            word = getattr(self, name)
            if type(word) is not int or not 0 <= word <= _WORD:  # seldom, and checks take time
                object.__setattr__(self, name, _integer(name, word, 32))

    def __repr__(self) -> str:
        return f"Key({self.word0:#010x}, {self.word1:#010x})"

    def fold_in(self, n: int) -> Key:
        """Return a key made of this one and an integer in [0, 2³²): a step or a layer, say."""
        return Key(*self._block(_integer("n", n, 32)))

    def split(self, n: int = 2) -> tuple[Key, ...]:
        """Return n independent keys."""
        return tuple(Key(*self._block(i)) for i in range(_integer("n", n, 32)))

    def _block(self, counter: int) -> tuple[int, int]:
        """Return the cipher of one counter; without arrays, whose overhead is ten times as much."""
        own, words = (self.word0, self.word1), (counter >> 32, counter & _WORD)
        word0, word1 = threefry2x32(own, words, _rotate_integer)
        return word0 & _WORD, word1 & _WORD

    def blocks(self, start: int, count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Return the ciphers of the 64-bit counters from ``start``: two arrays of 32-bit words."""
        start, count = _integer("start", start, 64), _integer("count", count, 60)
        words = np.empty((2, count), np.uint32)
        own = (np.array([self.word0], np.uint32), np.array([self.word1], np.uint32))
        for first in range(0, count, _CHUNK):
            size = min(_CHUNK, count - first)
            counter = np.uint64((start + first) % 2**64) + np.arange(size, dtype=np.uint64)
            high, low = (counter >> np.uint64(32)).astype(np.uint32), counter.astype(np.uint32)
            words[:, first : first + size] = threefry2x32(own, (high, low), _rotate)
        return words[0], words[1]

    def bits(self, shape: _Shape) -> NDArray[np.uint32]:
        """Return 32 random bits an element, equal to ``jax.random.bits(key, shape)``."""
        shape = checked_shape("shape", shape)
        word0, word1 = self.blocks(0, math.prod(shape))
        return (word0 ^ word1).reshape(shape)

    def level(self) -> int:
        """Return one integer out of ``range(LEVELS)``."""
        word0, word1 = self._block(0)
        return (word0 ^ word1) >> 2

    def levels(self, shape: _Shape) -> NDArray[np.int32]:
        """Return integers out of ``range(LEVELS)``."""
        return (self.bits(shape) >> np.uint32(2)).astype(np.int32)

    def indices(self, shape: _Shape) -> NDArray[np.uint16]:
        """Return 16 random bits an element: the cells of a table.

        One block of 64 bits serves four neighbours of the last axis, in the order low and high
        half of word 0, low and high half of word 1; each row starts with a new block. So an array
        may be cut anywhere along its other axes, and in fours along the last.
        """
        shape = checked_shape("shape", shape)
        *rows, last = shape or (1,)
        per_row = -(-last // 4)
        words = np.stack(self.blocks(0, math.prod(rows) * per_row), axis=-1, dtype="<u4")
        # Seen as 16-bit numbers, a word with its low byte first is its low half, then its high one.
        padded = words.view("<u2").reshape(*rows, 4 * per_row)
        return np.ascontiguousarray(padded[..., :last], np.uint16).reshape(shape)
