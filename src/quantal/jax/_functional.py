"""``quantal.jax.dilute``: pure, for any JAX library and inside any transformation."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from quantal._arguments import flag
from quantal._errors import FLOATING, wrong_type
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.jax._coefficients import SharedArrays, UnitArrays
from quantal.jax._parameters import Number, Rate, law_of, table_of
from quantal.jax._random_bits import typed_key
from quantal.keys import Key

__all__ = ["DILUTE", "dilute"]


def dilute(
    x: jax.Array,
    rate: Rate,
    alpha: Number | None = None,
    *,
    key: jax.Array | Key | None = None,
    training: bool = True,
    vary: Vary = "pq",
    unit_mean: bool = False,
    broadcast_dims: Axes = (),
    p_broadcast_dims: Axes = (),
) -> jax.Array:
    """Multiply every unit of a JAX array by a random coefficient of Quantal Synaptic Dilution.

    Parameters
    ----------
    x : jax.Array
        A floating-point array.
    rate : float, scalar jax.Array or Law
        The probability in [0, 1] that a unit is dropped. What is to change from step to step in
        compiled code is best a `quantal.jax.law`, with its own alpha; an array can change, too, at
        the price of a call back to the host, which makes the table.
    alpha : float or scalar jax.Array
        The homogeneity, above 0; ``inf`` is standard dropout.
    key : jax.Array or quantal.Key
        A JAX key or a `quantal.key`; from the same seed, both give the same coefficients.
    training : bool
        False returns x itself, of whatever type, and needs no key; as does a rate of 0.
    vary, unit_mean
        As in `quantal.Dilution`.
    broadcast_dims : int or tuple of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : int or tuple of int
        Axes along which only the retain probability is shared; masks stay independent.

    Returns
    -------
    jax.Array
        Of the same shape and dtype.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> dilute(jnp.ones((2, 4)), 0.5, 1.0, key=jax.random.key(0))
    Array([[0.6197041, 3.8779285, 0.       , 0.       ],
           [2.8753822, 0.       , 1.8864882, 0.       ]], dtype=float32)
    """
    training = flag("training", training)
    law = law_of(rate, alpha, vary, unit_mean)
    known = law.rate if isinstance(law, Dilution) else None
    identity = not training or known == 0
    if not identity:
        _check_array(x)
    mask_shape, p_shape = coefficient_shapes(
        getattr(x, "shape", ()), broadcast_dims, p_broadcast_dims
    )
    if identity:
        return x
    if known == 1:
        return jnp.zeros_like(x)
    table = table_of(law, UnitArrays if p_shape is None else SharedArrays)
    return _quantal_dilute(x, typed_key(key), table, mask_shape, p_shape)


def _check_array(x: Any) -> None:
    if isinstance(x, np.ma.MaskedArray) or not isinstance(x, jax.Array | np.ndarray):
        raise wrong_type("x", FLOATING, type(x))
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise wrong_type("x", FLOATING, x.dtype)
    if not x.dtype.isnative or x.dtype.itemsize > 8:  # bytes in a foreign order, long doubles
        raise wrong_type("x", f"{FLOATING} of a type that JAX has", x.dtype)


@functools.partial(jax.jit, static_argnums=(3, 4))  # also in eager code: one dispatch
def _quantal_dilute(x: jax.Array, key: jax.Array, table: Any, *shapes: Any) -> jax.Array:
    def multiply(x: jax.Array, draw: Any, table: Any) -> jax.Array:
        c = draw.coefficients(table)
        # Half precision is multiplied in float32, so that only the product is rounded.
        wide = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
        diluted = (x.astype(wide) * c.astype(wide)).astype(x.dtype)
        # What is dropped is 0, also if it was infinite or NaN; and so is its gradient.
        return jnp.where(c == 0, np.zeros((), x.dtype), diluted)

    def product(x: jax.Array, key: jax.Array, table: Any) -> jax.Array:
        # The backward pass keeps the draw and looks it up again, unless the compiler finds it
        # cheaper to keep c. prevent_cse=False lets it merge the two look-ups.
        draw = table.draw(key, *shapes)
        return jax.checkpoint(multiply, prevent_cse=False)(x, draw, table)

    sharding = jax.typeof(x).sharding
    if sharding.mesh.explicit_axes:  # else the compiler draws each shard on its own device
        product = jax.sharding.auto_axes(product, out_sharding=sharding.spec)
    return product(x, key, table)


DILUTE = "_quantal_dilute"
"""The name of that function, by which every draw can be found in a program."""
