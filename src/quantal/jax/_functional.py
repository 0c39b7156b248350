"""``quantal.jax.dilute``: pure, for any JAX library and inside any transformation."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import numpy as jnp

from quantal._errors import FLOATING, wrong_type
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.jax._coefficients import draw, look_up
from quantal.jax._random_bits import typed_key
from quantal.keys import Key

__all__ = ["checked", "dilute", "is_random"]

Number: TypeAlias = float | jax.Array


def dilute(
    x: jax.Array,
    rate: Number,
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
    rate : float or scalar jax.Array
        The probability in [0, 1] that a unit is dropped. As an array, it can change from step to
        step in compiled code, at the price of a call back to the host, which makes the table.
    alpha : float or scalar jax.Array
        The homogeneity, above 0; ``inf`` is standard dropout.
    key : jax.Array or quantal.Key
        A JAX key or a `quantal.key`; of the same seed, they give the same coefficients.
    training : bool
        False returns x itself and needs no key, as does a rate of 0.
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
    if not isinstance(x, jax.Array | np.ndarray) or not jnp.issubdtype(x.dtype, jnp.floating):
        raise wrong_type("x", FLOATING, getattr(x, "dtype", type(x)))
    dilution, traced = checked(rate, alpha, vary, unit_mean)
    mask_shape, p_shape = coefficient_shapes(x.shape, broadcast_dims, p_broadcast_dims)
    if not training or dilution.rate == 0:
        return x
    if dilution.rate == 1:
        return jnp.zeros_like(x)
    return _dilute(x, typed_key(key), traced, dilution, mask_shape, p_shape)


def checked(
    rate: Number, alpha: Number | None, vary: Vary = "pq", unit_mean: bool = False
) -> tuple[Dilution, dict[str, jax.Array]]:
    """Return the parameters, and those of them whose values are known only on the device.

    The latter stand as ½ in the `Dilution`; they are checked on the host when the table is made.
    """
    given: dict[str, Any] = {"rate": rate, "alpha": alpha}
    traced = {name: value for name, value in given.items() if isinstance(value, jax.Array)}
    for name, value in traced.items():
        if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
            raise wrong_type(name, "a number, or a scalar floating-point array", jax.typeof(value))
    return Dilution(**given | dict.fromkeys(traced, 0.5), vary=vary, unit_mean=unit_mean), traced


def is_random(rate: Number) -> bool:
    """Return whether a dilution of this rate needs a key: not at the rates 0 and 1."""
    return isinstance(rate, jax.Array) or 0 < rate < 1


@functools.partial(jax.jit, static_argnums=(3, 4, 5))  # also in eager code: one dispatch
def _dilute(
    x: jax.Array, key: jax.Array, traced: dict[str, jax.Array], dilution: Dilution, *shapes: Any
) -> jax.Array:
    def multiply(
        x: jax.Array, drawn: tuple[jax.Array, jax.Array], traced: dict[str, jax.Array]
    ) -> jax.Array:
        c = look_up(drawn, traced, dilution)
        # Half precision is multiplied in float32, so that only the product is rounded.
        wide = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
        return (x.astype(wide) * c.astype(wide)).astype(x.dtype)

    def product(x: jax.Array, key: jax.Array, traced: dict[str, jax.Array]) -> jax.Array:
        # A backward pass remembers the draw and looks it up again, unless the compiler finds it
        # cheaper to keep c: so it may merge what it recognises as one (prevent_cse).
        drawn = draw(key, traced, dilution, *shapes)
        return jax.checkpoint(multiply, prevent_cse=False)(x, drawn, traced)

    sharding = jax.typeof(x).sharding
    if sharding.mesh.explicit_axes:  # else the compiler itself draws each shard where it is used
        product = jax.sharding.auto_axes(product, out_sharding=sharding.spec)
    return product(x, key, traced)
