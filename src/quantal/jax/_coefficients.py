"""Coefficients from a key: the bits look them up in the tables."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal.dilution import Dilution
from quantal.jax import _random_bits as bits
from quantal.keys import CELLS, Key
from quantal.table import shared_table, table

__all__ = ["coefficients", "draw", "look_up"]


def coefficients(
    dilution: Dilution,
    mask_shape: tuple[int, ...],
    p_shape: tuple[int, ...] | None,
    key: jax.Array | Key,
) -> jax.Array:
    """Draw coefficients from the tables, by the plan of `quantal.keys`; float32.

    Examples
    --------
    >>> import quantal
    >>> coefficients(quantal.Dilution(0.5, 1.0), (3,), None, quantal.key(0))
    Array([0.6197041, 3.8779285, 0.       ], dtype=float32)
    """
    return _coefficients(bits.typed_key(key), dilution, mask_shape, p_shape)


@functools.partial(jax.jit, static_argnums=(1, 2, 3))  # also in eager code: one dispatch
def _coefficients(key: jax.Array, dilution: Dilution, *shapes: Any) -> jax.Array:
    return look_up(draw(key, {}, dilution, *shapes), {}, dilution)


def draw(
    key: jax.Array,
    traced: dict[str, jax.Array],
    dilution: Dilution,
    mask_shape: tuple[int, ...],
    p_shape: tuple[int, ...] | None,
) -> tuple[jax.Array, jax.Array]:
    """Draw what `look_up` needs, which is all that a backward pass has to remember.

    That is 2 bytes a unit for an index, or 1 for a mask with a shared probability. The parameters
    in ``traced`` take the place of those of ``dilution``.
    """
    own, shared, call = bits.split(key)
    if p_shape is None:
        return bits.indices(own, mask_shape).astype(jnp.uint16), bits.level(call)
    keep_below, values = _read(
        _shared_table, ((CELLS,), jnp.int32), ((CELLS,), jnp.float32), traced, dilution
    )
    cell = bits.indices(shared, p_shape)
    return bits.levels(own, mask_shape) < _take(keep_below, cell), _take(values, cell)


def look_up(
    drawn: tuple[jax.Array, jax.Array], traced: dict[str, jax.Array], dilution: Dilution
) -> jax.Array:
    """Return the coefficients of a draw."""
    if drawn[0].dtype == bool:
        keep, value = drawn
        return jnp.where(keep, value, np.float32(0))
    index, level = drawn
    values, threshold = _read(
        _table, ((2 * CELLS,), jnp.float32), ((), jnp.int32), traced, dilution
    )
    # The row is an offset of the index: nothing is copied.
    row = lax.select(level < threshold, np.int32(CELLS), np.int32(0))
    return _take(values, index.astype(jnp.int32) + row)


def _take(values: jax.Array, index: jax.Array) -> jax.Array:
    return values.at[index].get(mode="promise_in_bounds")


def _table(dilution: Dilution) -> tuple[Any, Any]:
    drawn = table(dilution)
    return drawn.values.reshape(-1), np.int32(drawn.threshold)


def _shared_table(dilution: Dilution) -> tuple[Any, Any]:
    drawn = shared_table(dilution)
    return drawn.keep_below, drawn.values


def _read(
    make: Any, first: Any, second: Any, traced: dict[str, jax.Array], dilution: Dilution
) -> Any:
    """Return a table: a constant of the program or, where a parameter is traced, from the host."""
    if not traced:
        return tuple(jnp.asarray(array) for array in make(dilution))

    def on_host(**parameters: Any) -> Any:
        # As the shortest decimal: a float32 of 0.1 means 0.1, and finds the same table.
        numbers = {name: float(str(np.asarray(value)[()])) for name, value in parameters.items()}
        law = {"rate": dilution.rate, "alpha": dilution.alpha} | numbers
        return make(Dilution(**law, vary=dilution.vary, unit_mean=dilution.unit_mean))

    fixed = {name: lax.stop_gradient(value) for name, value in traced.items()}
    shapes = jax.ShapeDtypeStruct(*first), jax.ShapeDtypeStruct(*second)
    return jax.pure_callback(on_host, shapes, vmap_method="sequential", **fixed)
