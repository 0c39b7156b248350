"""QSD for NumPy arrays: the model that the other adapters follow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantal._arguments import array, broadcasts, flag, instance, shape
from quantal._errors import FLOATING, wrong_value
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.keys import LEVELS, Key
from quantal.table import shared_table, table

__all__ = ["coefficients", "dilute"]

_SOURCES = (np.random.Generator, Key)


def dilute(
    x: NDArray[Any],
    rate: float,
    alpha: float | None = None,
    *,
    rng: np.random.Generator | Key | None = None,
    training: bool = True,
    vary: Vary = "pq",
    unit_mean: bool = False,
    broadcast_dims: Axes = (),
    p_broadcast_dims: Axes = (),
) -> NDArray[Any]:
    """Dilute a NumPy array; see `quantal.dilute`.

    Examples
    --------
    >>> import quantal
    >>> dilute(np.ones(4, np.float32), 0.5, 1.0, rng=quantal.key(0).fold_in(3))
    array([0.       , 1.5527036, 3.9860291, 0.       ], dtype=float32)
    """
    dilution = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    x = array("x", x, FLOATING)
    mask_shape, p_shape = coefficient_shapes(x.shape, broadcast_dims, p_broadcast_dims)
    if rng is not None:
        instance("rng", rng, _SOURCES, "a numpy.random.Generator, a quantal.key or None")
    if not flag("training", training) or dilution.rate == 0:
        return x
    if dilution.rate == 1:
        return np.zeros_like(x)
    c = coefficients(dilution, mask_shape, p_shape, np.random.default_rng() if rng is None else rng)
    return _product(x, c)


def _product(x: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
    """Return x·c in the precision of x; what is dropped is 0, even if it was not finite.

    Examples
    --------
    >>> _product(np.array([1.0, np.inf, np.nan]), np.array([2.0, 2.0, 0.0]))
    array([ 2., inf,  0.])
    """
    with np.errstate(invalid="ignore"):
        # float16 is multiplied in float32, so that only the product is rounded. Not with *, which
        # is another product for a numpy.matrix.
        y: NDArray[Any] = np.asanyarray(np.multiply(x, c)).astype(x.dtype, copy=False)
    if y is not np.ma.masked:  # one constant for all that is masked
        np.copyto(y, 0, where=c == 0)
    return y


def coefficients(
    dilution: Dilution,
    mask_shape: tuple[int, ...],
    p_shape: tuple[int, ...] | None,
    rng: np.random.Generator | Key,
) -> NDArray[np.float32]:
    """Draw coefficients from the tables, by the plan of `quantal.keys`."""
    instance("dilution", dilution, Dilution, "a quantal.Dilution")
    mask_shape = shape("mask_shape", mask_shape)
    instance("rng", rng, _SOURCES, "a numpy.random.Generator or a quantal.key")
    source = _FromKey(rng) if isinstance(rng, Key) else _FromGenerator(rng)
    if p_shape is None:
        drawn = table(dilution)
        row = int(source.level() < drawn.threshold)
        return np.asarray(drawn.values[row, source.indices(mask_shape)])
    p_shape = shape("p_shape", p_shape)
    if not broadcasts(p_shape, mask_shape):
        raise wrong_value("p_shape", f"a shape that broadcasts to {mask_shape}", p_shape)
    shared = shared_table(dilution)
    cell = source.shared_indices(p_shape)
    keep = source.levels(mask_shape) < shared.keep_below[cell]
    return np.where(keep, shared.values[cell], np.float32(0))


class _FromKey:
    def __init__(self, key: Key) -> None:
        own, shared, call = key.split(3)
        self.level, self.indices, self.levels = call.level, own.indices, own.levels
        self.shared_indices = shared.indices


class _FromGenerator:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def level(self) -> int:
        return int(self.rng.integers(LEVELS))

    def levels(self, shape: tuple[int, ...]) -> NDArray[np.int32]:
        return self.rng.integers(LEVELS, size=shape, dtype=np.int32)

    def indices(self, shape: tuple[int, ...]) -> NDArray[np.uint16]:
        return self.rng.integers(2**16, size=shape, dtype=np.uint16)

    shared_indices = indices
