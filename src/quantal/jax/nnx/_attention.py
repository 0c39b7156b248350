"""QSD on the weights of ``nnx.MultiHeadAttention``, in the place of its dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from flax.nnx.nn import attention
from jax import numpy as jnp

from quantal.jax._functional import dilute

__all__ = ["QSDAttention"]


@dataclass(frozen=True)
class QSDAttention:
    """An ``attention_fn`` that dilutes the attention weights.

    Parameters
    ----------
    alpha : float
        The homogeneity.
    native : function
        The ``attention_fn`` that it stands for, and that it calls where nothing is drawn.
    """

    alpha: float
    native: Callable[..., jax.Array] = attention.dot_product_attention

    def __call__(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        bias: jax.Array | None = None,
        mask: jax.Array | None = None,
        broadcast_dropout: bool = True,
        dropout_rng: jax.Array | None = None,
        dropout_rate: float = 0.0,
        deterministic: bool = False,
        dtype: Any = None,
        precision: Any = None,
        **options: Any,
    ) -> jax.Array:
        """Attend, as ``nnx.dot_product_attention`` does."""
        options |= {"bias": bias, "mask": mask, "dtype": dtype, "precision": precision}
        if deterministic or dropout_rate == 0:
            return self.native(
                query,
                key,
                value,
                dropout_rate=dropout_rate,
                deterministic=deterministic,
                **options,
            )
        wide = dtype or jnp.result_type(query, key, value)
        query, key, value = (array.astype(wide) for array in (query, key, value))
        weights = attention.dot_product_attention_weights(query, key, deterministic=True, **options)
        weights = dilute(
            weights,
            dropout_rate,
            self.alpha,
            key=dropout_rng,
            broadcast_dims=tuple(range(weights.ndim - 2)) if broadcast_dropout else (),
        )
        # Heads of keys and values may be fewer: each serves a group of queries.
        value = jnp.repeat(value, weights.shape[-3] // value.shape[-2], axis=-2)
        return jnp.einsum("...hqk,...khd->...qhd", weights, value, precision=precision)
