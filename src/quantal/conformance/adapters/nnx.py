"""``quantal.jax.nnx.QSD`` on trial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flax import nnx

from quantal.conformance.adapters.jax import JaxAdapter
from quantal.jax.nnx import QSD

__all__ = ["adapter"]


class _NNX(JaxAdapter):
    name = "nnx"

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        rngs = nnx.Rngs(dropout=seed)
        layer: Callable[[Any], Any] = QSD(
            rate, alpha, deterministic=not training, rngs=rngs, **settings
        )
        return layer

    def vjp(self, f: Callable[[Any], Any], x: Any, upstream: Any) -> tuple[Any, Any]:
        output, pull = nnx.vjp(lambda layer, x: layer(x), f, x)
        return output, pull(upstream)[1]


adapter = _NNX()
