"""``quantal.numpy`` on trial, with NumPy's own generator and with a portable key."""

from __future__ import annotations

from typing import Any

import numpy as np

import quantal
from quantal.conformance._adapter import Array
from quantal.numpy import dilute

__all__ = ["native", "portable"]


class _Native:
    """``quantal.numpy.dilute`` with a ``numpy.random.Generator``."""

    name = "numpy"
    version = quantal.__version__

    def apply(self, x: Array, *, seed: int, **settings: Any) -> Array:
        return dilute(x, rng=np.random.default_rng(seed), **settings)

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        # NumPy has no gradients: as y = c·x is linear, its gradient is the same draw of upstream.
        return self.apply(x, seed=seed, **settings), self.apply(upstream, seed=seed, **settings)

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [dilute(x, rng=rng, **settings) for _ in range(count)]


class _Portable(_Native):
    """``quantal.numpy.dilute`` with a portable key."""

    name = "numpy-key"

    def apply(self, x: Array, *, seed: int, **settings: Any) -> Array:
        return dilute(x, rng=quantal.key(seed), **settings)

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        key = quantal.key(seed)
        return [dilute(x, rng=key.fold_in(call), **settings) for call in range(count)]


native, portable = _Native(), _Portable()
