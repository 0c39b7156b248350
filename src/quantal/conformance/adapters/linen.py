"""``quantal.jax.linen.QSD`` on trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from quantal.conformance.adapters.jax import JaxAdapter
from quantal.jax.linen import QSD

__all__ = ["adapter"]


class _Linen(JaxAdapter):
    name = "linen"

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        layer = QSD(rate, alpha, deterministic=not training, **settings)
        key, count = jax.random.key(seed), iter(range(2**31))
        # A model that is applied step by step is given a new key each time.
        return lambda x: layer.apply({}, x, rngs={"dropout": jax.random.fold_in(key, next(count))})


adapter = _Linen()
