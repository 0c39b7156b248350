"""QSD on the weights of ``nnx.MultiHeadAttention``, in the place of its dropout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import numpy as jnp

from quantal.jax._functional import dilute
from quantal.jax._private_api import attention_weights

__all__ = ["QSDAttention", "is_plain_attention"]


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
    native: Callable[..., jax.Array] = nnx.dot_product_attention

    def __call__(self, *args: Any, **options: Any) -> jax.Array:
        """Attend, as ``nnx.dot_product_attention`` does."""
        bound = self.native.keywords if isinstance(self.native, partial) else {}
        return self._attend(*args, **bound | options)

    def _attend(
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
        weights_of = attention_weights()
        assert weights_of is not None  # `sites` has named what cannot be swapped without it
        weights = weights_of(query, key, deterministic=True, **options)
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


def is_plain_attention(function: Any) -> bool:
    """Return whether this is Flax's own attention, with or without options bound to it."""
    if isinstance(function, partial) and not function.args:
        function = function.func
    return function is nnx.dot_product_attention
