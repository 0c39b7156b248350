"""QSD for NumPy arrays: the model that the other adapters follow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from quantal._errors import FLOATING, wrong_type
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.keys import LEVELS, Key
from quantal.table import shared_table, table

__all__ = ["coefficients", "dilute"]


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
    """Dilute a NumPy array; see `quantal.dilute`."""
    dilution = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    if not np.issubdtype(x.dtype, np.floating):
        raise wrong_type("x", FLOATING, x.dtype)
    mask_shape, p_shape = coefficient_shapes(x.shape, broadcast_dims, p_broadcast_dims)
    if not isinstance(rng, np.random.Generator | Key | None):
        raise wrong_type("rng", "a numpy.random.Generator, a quantal.key or None", rng)
    if not training or dilution.rate == 0:
        return x
    if dilution.rate == 1:
        return np.zeros_like(x)
    c = coefficients(dilution, mask_shape, p_shape, np.random.default_rng() if rng is None else rng)
    # float16 is multiplied in float32, so that only the product is rounded.
    return np.asanyarray(x * c).astype(x.dtype, copy=False)


def coefficients(
    dilution: Dilution,
    mask_shape: tuple[int, ...],
    p_shape: tuple[int, ...] | None,
    rng: np.random.Generator | Key,
) -> NDArray[np.float32]:
    """Draw coefficients from the tables, by the plan of `quantal.keys`."""
    source = _Portable(rng) if isinstance(rng, Key) else _Native(rng)
    if p_shape is None:
        drawn = table(dilution)
        row = int(source.level() < drawn.threshold)
        return np.asarray(drawn.values[row, source.indices(mask_shape)])
    shared = shared_table(dilution)
    cell = source.shared_indices(p_shape)
    keep = source.levels(mask_shape) < shared.keep_below[cell]
    return np.where(keep, shared.values[cell], np.float32(0))


class _Portable:
    def __init__(self, key: Key) -> None:
        own, shared, call = key.split(3)
        self.level, self.indices, self.levels = call.level, own.indices, own.levels
        self.shared_indices = shared.indices


class _Native:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng

    def level(self) -> int:
        return int(self.rng.integers(LEVELS))

    def levels(self, shape: tuple[int, ...]) -> NDArray[np.int32]:
        return self.rng.integers(LEVELS, size=shape, dtype=np.int32)

    def indices(self, shape: tuple[int, ...]) -> NDArray[np.uint16]:
        return self.rng.integers(2**16, size=shape, dtype=np.uint16)

    shared_indices = indices
