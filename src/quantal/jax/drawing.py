"""Coefficients from a key: the bits look them up in the tables."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal.dilution import Dilution
from quantal.jax import bits
from quantal.keys import Key
from quantal.table import CELLS, shared_table, table

__all__ = ["coefficients", "draw"]


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
    return draw(bits.typed_key(key), {}, dilution, mask_shape, p_shape)


# Compiled also in eager code, which is then one dispatch; and a table that several layers read is
# one constant of the program.
@functools.partial(jax.jit, static_argnames=("dilution", "mask_shape", "p_shape"))
def draw(
    key: jax.Array,
    traced: dict[str, jax.Array],
    dilution: Dilution,
    mask_shape: tuple[int, ...],
    p_shape: tuple[int, ...] | None,
) -> jax.Array:
    """Draw coefficients; the parameters in ``traced`` take the place of those of ``dilution``."""
    own, shared, call = bits.split(key)
    read = functools.partial(_read, traced=traced, dilution=dilution)
    if p_shape is None:
        values, threshold = read(_table, ((2 * CELLS,), jnp.float32), ((), jnp.int32))
        # The row is an offset of the index: nothing is copied.
        row = lax.select(bits.level(call) < threshold, np.int32(CELLS), np.int32(0))
        return _take(values, bits.indices(own, mask_shape) + row)
    keep_below, values = read(_shared_table, ((CELLS,), jnp.int32), ((CELLS,), jnp.float32))
    cell = bits.indices(shared, p_shape)
    keep = bits.levels(own, mask_shape) < _take(keep_below, cell)
    return jnp.where(keep, _take(values, cell), np.float32(0))


def _take(values: jax.Array, index: jax.Array) -> jax.Array:
    return values.at[index].get(mode="promise_in_bounds")


def _table(dilution: Dilution) -> tuple[Any, Any]:
    drawn = table(dilution)
    return drawn.values.reshape(-1), np.int32(drawn.threshold)


def _shared_table(dilution: Dilution) -> tuple[Any, Any]:
    drawn = shared_table(dilution)
    return drawn.keep_below, drawn.values


def _read(make: Any, *outputs: Any, traced: dict[str, jax.Array], dilution: Dilution) -> Any:
    """Return a table: a constant of the program or, where a parameter is traced, from the host."""
    if not traced:
        return tuple(jnp.asarray(array) for array in make(dilution))

    def on_host(**parameters: Any) -> Any:
        # As the shortest decimal: a float32 of 0.1 means 0.1, and finds the same table.
        numbers = {name: float(str(np.asarray(value)[()])) for name, value in parameters.items()}
        law = {"rate": dilution.rate, "alpha": dilution.alpha} | numbers
        return make(Dilution(**law, vary=dilution.vary, unit_mean=dilution.unit_mean))

    fixed = {name: lax.stop_gradient(value) for name, value in traced.items()}
    shapes = tuple(jax.ShapeDtypeStruct(*output) for output in outputs)
    return jax.pure_callback(on_host, shapes, vmap_method="sequential", **fixed)
