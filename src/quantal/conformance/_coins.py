"""Coefficients as fair coins, and what many coins show together.

The distribution function turns a coefficient into a uniform number, if those that were dropped,
or cannot be told apart, are spread at random over their share of it. Which half, or which
quarters, that number is in are fair coins, whatever the law. Products of fair coins are fair
coins again: any three units, any four, any selection of twelve neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from quantal.conformance._laws import CELL, is_alike
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

__all__ = [
    "BIAS",
    "FREQUENCIES",
    "coins",
    "count_ranks",
    "lattice_waves",
    "products",
    "triple_products",
    "uniform",
    "window_parities",
]

BIAS = 8 * CELL
"""How far the mean of a coin may be from 0: in a call, a table is off by a cell or two."""

Signs = NDArray[np.float32]


def uniform(law: Dilution, c: Floats, rng: np.random.Generator, rounding: float) -> Floats:
    """Return coefficients as uniform numbers."""
    c = np.asarray(c, np.float64)
    spread = rng.random(c.shape)
    kept = c != 0
    if is_alike(law):
        return np.where(kept, law.rate + law.retain * spread, law.rate * spread)
    values, which = np.unique(c[kept], return_inverse=True)
    low, high = law.cdf(values * (1 - rounding)), law.cdf(values * (1 + rounding))
    numbers = law.rate * spread
    numbers[kept] = low[which] + (high - low)[which] * spread[kept]
    return numbers


def coins(numbers: Floats) -> tuple[Signs, Signs]:
    """Return two independent fair coins ±1 for each number: which half, and inside or outside."""
    half = np.where(numbers < 0.5, np.float32(1), np.float32(-1))
    inside = np.where(np.abs(numbers - 0.5) < 0.25, np.float32(1), np.float32(-1))
    return half, inside


def products(
    kinds: tuple[Signs, ...], gap: int, distances: int, *, pairs: bool = True
) -> Iterator[tuple[str, Floats, NDArray[np.int64]]]:
    """Yield mean products of three coins and of four, and of how many terms each is a mean.

    Three: a unit, the one ``gap`` later, and any third one within ``distances`` of the first.
    Four: two such pairs, if they are asked for.
    """
    length = fft.next_fast_len(len(kinds[0]) + distances, real=True)
    single = [fft.rfft(coin, length) for coin in kinds]
    lags = np.arange(-distances, distances + 1)
    third = lags[(lags != 0) & (lags != gap)]
    fourth = np.arange(1, distances + 1)
    fourth = fourth[fourth != gap]
    for coin in kinds:
        both = coin[:-gap] * coin[gap:]
        paired = fft.rfft(both, length)
        # The pair at i and the third coin at i + lag, both within the stream.
        first, last = np.maximum(0, -third), np.minimum(len(both), len(coin) - third)
        for other in single:
            sums = fft.irfft(paired.conj() * other, length)[third]
            yield "three", sums / (last - first), last - first
        if pairs:
            sums = fft.irfft(np.abs(paired) ** 2, length)[fourth]
            yield "four", sums / (len(both) - fourth), len(both) - fourth


def triple_products(
    signal: NDArray[np.float32], gap: int, distances: int
) -> tuple[Floats, NDArray[np.int64]]:
    """Return mean products of three values of a signal, and of how many terms each is a mean.

    For signals (calls, units): of a unit, the one ``gap`` later, and any third one of the call
    within ``distances`` of the first.
    """
    units = signal.shape[1]
    length = fft.next_fast_len(units + distances, real=True)
    both = signal[:, :-gap] * signal[:, gap:]
    lags = np.arange(-distances, distances + 1)
    third = lags[(lags != 0) & (lags != gap)]
    spectra = fft.rfft(both, length).conj() * fft.rfft(signal, length)
    sums = fft.irfft(spectra.sum(axis=0), length)[third]
    first, last = np.maximum(0, -third), np.minimum(units - gap, units - third)
    terms = len(signal) * (last - first)
    return sums / terms, terms


FREQUENCIES = 64
"""Cells of a uniform number in which a lattice is looked for: multiples up to 31 show."""


def lattice_waves(numbers: Floats, gaps: tuple[int, int]) -> tuple[Floats, int]:
    """Return the means of all waves over three uniform numbers that stand some gaps apart.

    If h·u + j·v + k·w is a whole number, or always close to one, for three numbers u, v and w and
    integers h, j and k, then the wave of these frequencies has a mean of size 1; that of
    independent numbers is 0. Real and imaginary parts are returned, and the number of triples.
    The last frequency is not 0 in any of them, nor are both others.
    """
    cells = np.minimum((numbers * FREQUENCIES).astype(np.int64), FREQUENCIES - 1)
    near, far = gaps
    count = len(cells) - far
    codes = (cells[:count] * FREQUENCIES + cells[near : near + count]) * FREQUENCIES
    codes += cells[far:]
    joint = np.bincount(codes, minlength=FREQUENCIES**3).astype(np.float64)
    # Of a real array the other half of the frequencies are mirror images.
    waves = fft.rfftn(joint.reshape((FREQUENCIES,) * 3)) / count
    shown = waves[..., 1:].copy()
    shown[0, 0] = 0.0
    return np.concatenate([shown.real.reshape(-1), shown.imag.reshape(-1)]), count


def window_parities(heads: NDArray[np.bool_], width: int) -> tuple[Floats, int]:
    """Return the mean parities of all selections of coins in a window that slides along an axis.

    For coins (…, steps): of each selection that includes the last coin of the window and at least
    one more. And return the number of windows.
    """
    steps = heads.shape[-1] - width + 1
    codes = np.zeros((*heads.shape[:-1], steps), np.int64)
    for place in range(width):
        codes |= heads[..., place : place + steps].astype(np.int64) << place
    sums = np.bincount(codes.reshape(-1), minlength=2**width).astype(np.float64)
    for place in range(width):  # the Walsh-Hadamard transform
        pairs = sums.reshape(-1, 2, 2**place)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
    with_last = sums[2 ** (width - 1) + 1 :]
    return with_last / codes.size, codes.size


def count_ranks(
    counts: NDArray[np.int64], size: int, share: float, rng: np.random.Generator
) -> Floats:
    """Return numbers of hits among ``size`` independent units as uniform numbers."""
    below = np.where(counts > 0, special.bdtr(np.maximum(counts - 1, 0), size, share), 0.0)
    upto = special.bdtr(counts, size, share)
    return np.asarray(below + (upto - below) * rng.random(counts.shape))


def rank_slack(size: int, share: float) -> float:
    """Return by how much a table's cell may shift the distribution of such a number."""
    # A shift of the probability moves the count, in standard deviations, and with it the law by
    # no more than the height of the density there.
    return float(CELL * size / np.sqrt(size * share * (1 - share)))


def gaps(strides: Sequence[int], most: int) -> list[int]:
    """Return the gaps between two of three units that are tried: near ones, and an axis apart."""
    near = [*range(1, 13), 15, 16, 17, 31, 32, 33, 63, 64, 100, 128, 256, 512, 1024, 2048]
    wanted = {*near, *strides, *(2 * stride for stride in strides)}
    return sorted(gap for gap in wanted if gap < most)
