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
        def loss(layer: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
            output = layer(x)
            return (output * upstream).sum(), output

        # A layer holds a stream, which a plain jax.vjp would leave in an unusable state.
        (_, output), gradient = nnx.value_and_grad(loss, argnums=1, has_aux=True)(f, x)
        return output, gradient


adapter = _NNX()
