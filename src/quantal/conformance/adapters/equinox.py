"""``quantal.jax.equinox.QSD`` on trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from quantal.conformance.adapters.jax import JaxAdapter
from quantal.jax.equinox import QSD

__all__ = ["adapter"]


class _Equinox(JaxAdapter):
    name = "equinox"

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        layer = QSD(rate, alpha, inference=not training, **settings)
        key, count = jax.random.key(seed), iter(range(2**31))
        return lambda x: layer(x, key=jax.random.fold_in(key, next(count)))


adapter = _Equinox()
