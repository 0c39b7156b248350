"""QSD on the weights of ``nn.MultiHeadDotProductAttention``, in the place of its dropout."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from flax import linen as nn
from jax import numpy as jnp

from quantal.jax._functional import dilute

__all__ = ["QSDDotProductAttention"]


@dataclass(frozen=True)
class QSDDotProductAttention:
    """``nn.dot_product_attention`` with diluted attention weights."""

    alpha: float

    # Linen passes on the arguments that it finds here.
    __signature__ = inspect.signature(nn.dot_product_attention)

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        *,
        broadcast_dropout: bool = True,
        dropout_rng: jax.Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        precision: Any = None,
        qk_attn_weights_einsum: Callable[..., jax.Array] | None = None,
        attn_weights_value_einsum: Callable[..., jax.Array] | None = None,
        **options: Any,
    ) -> jax.Array:
        """Attend."""
        einsums = (qk_attn_weights_einsum, attn_weights_value_einsum)
        if not deterministic:
            plain = partial(jnp.einsum, precision=precision)
            of_values = attn_weights_value_einsum or plain

            def diluting(subscripts: str, weights: jax.Array, value: jax.Array) -> jax.Array:
                diluted = dilute(
                    weights,
                    dropout_rate,
                    self.alpha,
                    key=dropout_rng,
                    broadcast_dims=tuple(range(weights.ndim - 2)) if broadcast_dropout else (),
                )
                return of_values(subscripts, diluted, value)

            precision, einsums = None, (qk_attn_weights_einsum or plain, diluting)
        return nn.dot_product_attention(
            query,
            key,
            value,
            dropout_rate=dropout_rate,
            deterministic=True,
            precision=precision,
            qk_attn_weights_einsum=einsums[0],
            attn_weights_value_einsum=einsums[1],
            **options,
        )
