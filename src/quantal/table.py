"""The law as tables of 2¹⁶ equally likely values, so that a draw is 16 random bits and a look-up.

Each cell of a table holds the mean of the law over its share of the probability, so E[c] is exact,
and no value is off by more than one cell: the Kolmogorov distance to the exact law is of the order
of 2⁻¹⁶. A table can drop a unit with a probability of k/2¹⁶ only, so there are two, with the
neighbouring numbers of zero cells, and each call picks one of them at random in the proportion
that makes P(c = 0) equal to the rate.

Where only the retain probability is shared (``p_broadcast_dims``), the masks are drawn one by one:
a second kind of table then gives, for 16 bits, a threshold for 30-bit numbers and a size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from quantal._arguments import instance
from quantal._beta import Floats
from quantal._beta_cells import cell_moments
from quantal._process_lock import ProcessLock
from quantal.dilution import Dilution
from quantal.keys import CELLS, LEVELS

__all__ = ["SharedTable", "Table", "shared_table", "table"]


@dataclass(frozen=True, eq=False)
class Table:
    """A law, ready to be drawn from.

    Attributes
    ----------
    values : numpy.ndarray
        Two rows of 2¹⁶ coefficients in ascending order, float32, read-only.
    threshold : int
        The second row, which has one zero more, is the one to use in a call whose own random
        integer out of ``range(LEVELS)`` is below this.
    """

    values: NDArray[np.float32]
    threshold: int


@dataclass(frozen=True, eq=False)
class SharedTable:
    """A law for masks that share a retain probability.

    Attributes
    ----------
    keep_below : numpy.ndarray
        For each of 2¹⁶ equally likely probabilities, the threshold below which a random integer
        out of ``range(LEVELS)`` keeps its unit, int32, read-only.
    values : numpy.ndarray
        The coefficient of the units that are kept, float32, read-only.
    """

    keep_below: NDArray[np.int32]
    values: NDArray[np.float32]


_Made = TypeVar("_Made")
_Scalar = TypeVar("_Scalar", bound=np.generic)


def _once(make: Callable[[Dilution], _Made]) -> Callable[[Dilution], _Made]:
    """Cache by dilution, and let threads that ask for the same table wait for one of them."""
    cached = functools.lru_cache(maxsize=256)(make)
    lock = ProcessLock()

    @functools.wraps(make)
    def made(dilution: Dilution) -> _Made:
        instance("dilution", dilution, Dilution, "a quantal.Dilution")
        with lock():
            return cached(dilution)

    return made


@_once
def table(dilution: Dilution) -> Table:
    """Return the table of a dilution; it is computed once.

    Examples
    --------
    >>> drawn = table(Dilution(0.5, 1.0))
    >>> drawn.values[0, [0, 32767, 32768, 65535]]
    array([0.        , 0.        , 0.01473139, 3.9999695 ], dtype=float32)
    """
    zeros, share = divmod(dilution.rate * CELLS, 1)
    values = np.zeros((2, CELLS), np.float32)
    for row, dropped in zip(values, (int(zeros), int(zeros) + 1), strict=True):
        if dropped < CELLS:
            row[dropped:] = _normal_numbers(_kept_means(dilution, CELLS - dropped))
    return Table(_read_only(values), round(share * LEVELS))


@_once
def shared_table(dilution: Dilution) -> SharedTable:
    """Return the table of a dilution whose retain probabilities are shared; it is computed once.

    Examples
    --------
    >>> shared = shared_table(Dilution(0.5, 1.0))
    >>> shared.keep_below.shape, float(shared.values.max().round(3))
    ((65536,), 4.0)
    """
    p, p_squared = _probability_cells(dilution)
    keep = np.full(CELLS, dilution.retain) if dilution.vary == "q" else p
    if dilution._beta_parameters is None:
        values = np.full(CELLS, dilution.ceiling)
    elif dilution.vary == "q":
        values = p * dilution.ceiling
    else:
        # The mean of the kept sizes in a cell is biased to the larger p, as in the exact law.
        values = p_squared / np.maximum(p, np.finfo(float).tiny) * dilution.ceiling
    keep_below = _whole(keep * LEVELS)
    # Integer thresholds cannot express every probability: the values make up for it in the mean.
    mean = float(np.sum(keep_below * values)) / (CELLS * LEVELS)
    values *= dilution.mean / mean if mean > 0 else 1
    np.minimum(values, dilution.ceiling, out=values)
    return SharedTable(
        _read_only(keep_below.astype(np.int32)),
        _read_only(_normal_numbers(values).astype(np.float32)),
    )


def _kept_means(dilution: Dilution, cells: int) -> Floats:
    """Return the means of the kept coefficients over equal shares of their probability."""
    if dilution._beta_parameters is None:
        return np.full(cells, dilution.ceiling)
    (means,) = cell_moments(*dilution._beta_parameters, cells, 1)
    means *= dilution.ceiling
    return means


def _probability_cells(dilution: Dilution) -> tuple[Floats, Floats]:
    """Return the means of p and p² over 2¹⁶ equal shares of Beta(α, β)."""
    beta = Dilution(dilution.rate, dilution.alpha, vary="q")._beta_parameters
    if beta is None:
        p = np.full(CELLS, dilution.retain)
        return p, p**2
    p, p_squared = cell_moments(*beta, CELLS, 1, 2)
    return p, p_squared


def _whole(numbers: Floats) -> Floats:
    """Round to integers so that the total is kept: no cell is off by 1, the sum by at most ½."""
    below = np.floor(numbers)
    fractions = numbers - below
    missing = round(float(np.sum(fractions)))
    if missing:
        # The largest fractions are rounded up; where they tie, the last, which keeps the order.
        last = np.partition(fractions, CELLS - missing)[CELLS - missing]
        below += fractions > last
        tied = np.flatnonzero(fractions == last)
        below[tied[tied.size - (missing - np.count_nonzero(fractions > last)) :]] += 1
    return below


def _normal_numbers(values: Floats) -> Floats:
    # A kept unit must not look dropped: what a normal float32 cannot hold becomes the smallest.
    # (Subnormal numbers would also be slow, and flushed to zero by some devices.)
    return np.maximum(values, np.finfo(np.float32).tiny, out=values)


def _read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    array.setflags(write=False)
    return array
