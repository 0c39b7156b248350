"""``quantal.jax.dilute`` on trial, with JAX's own keys and with portable ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import quantal
from quantal.conformance._adapter import Array
from quantal.conformance.adapters.layers import LayerAdapter
from quantal.jax import dilute

__all__ = ["JaxAdapter", "native", "portable"]


class JaxAdapter(LayerAdapter):
    """What the adapters for JAX and its libraries share."""

    # ruff: noqa: D102  (documented in the base class)

    compiles = True

    def tensor(self, x: Array) -> Any:
        return jax.numpy.asarray(x)

    def array(self, x: Any) -> Array:
        return np.asarray(x)

    def vjp(self, f: Callable[[Any], Any], x: Any, upstream: Any) -> tuple[Any, Any]:
        output, pull = jax.vjp(f, x)
        return output, pull(upstream)[0]

    def calls(self, x: Array, **settings: Any) -> list[Array]:
        with _wide(x):
            return super().calls(x, **settings)

    def grad(self, x: Array, upstream: Array, **settings: Any) -> tuple[Array, Array]:
        with _wide(x):
            return super().grad(x, upstream, **settings)


def _wide(x: Array) -> Any:
    """Let JAX have float64 where it is asked for."""
    if x.dtype != np.float64:
        return contextlib.nullcontext()
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax import experimental  # where it was before JAX 0.8

    older: Any = experimental
    return older.enable_x64()


class _Jax(JaxAdapter):
    name = "jax"

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        key, count = self.key(seed), iter(range(2**31))

        def call(x: Any) -> Any:
            own = self.fold_in(key, next(count))
            return dilute(x, rate, alpha, key=own, training=training, **settings)

        return call

    def key(self, seed: int) -> Any:
        return jax.random.key(seed)

    def fold_in(self, key: Any, count: int) -> Any:
        return jax.random.fold_in(key, count)


class _Portable(_Jax):
    name = "jax-key"

    def key(self, seed: int) -> Any:
        return quantal.key(seed)

    def fold_in(self, key: Any, count: int) -> Any:
        return key.fold_in(count)


native, portable = _Jax(), _Portable()
