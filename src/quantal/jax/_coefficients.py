"""Coefficients from a key: random bits look them up in the tables of a law.

There are two kinds of draw. Usually each unit has a retain probability of its own, and 16 bits
look its coefficient up in a table (`UnitArrays`, `UnitDraw`). Where units share a probability, it
is looked up once for all of them, and a comparison keeps or drops each (`SharedArrays`,
`SharedDraw`).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal import table as host
from quantal._arguments import broadcasts, instance, shape
from quantal._errors import wrong_value
from quantal.dilution import Dilution
from quantal.jax import _random_bits as bits
from quantal.keys import CELLS, Key

__all__ = [
    "SharedArrays",
    "SharedDraw",
    "UnitArrays",
    "UnitDraw",
    "coefficients",
    "table_on_device",
]

Shape = tuple[int, ...]
_shape: Any = jax.ShapeDtypeStruct


class UnitDraw(NamedTuple):
    """A cell of the table for each unit, 2 bytes, and the level that chooses the table's row."""

    cell: jax.Array
    level: jax.Array

    def coefficients(self, table: UnitArrays) -> jax.Array:
        """Look the coefficients up."""
        # The row is an offset of the index: nothing is copied.
        row = lax.select(self.level < table.threshold, np.int32(CELLS), np.int32(0))
        return _take(table.values, self.cell.astype(jnp.int32) + row)


class UnitArrays(NamedTuple):
    """The arrays of a `quantal.table.Table`, its two rows one after the other."""

    values: Any
    threshold: Any

    @classmethod
    def of(cls, dilution: Dilution) -> UnitArrays:
        """Return the table of a law, on the host."""
        made = host.table(dilution)
        return cls(made.values.reshape(-1), np.int32(made.threshold))

    @classmethod
    def shapes(cls) -> UnitArrays:
        """Return the shapes and types of the arrays."""
        return cls(_shape((2 * CELLS,), jnp.float32), _shape((), jnp.int32))

    def draw(self, key: jax.Array, mask_shape: Shape, p_shape: None) -> UnitDraw:
        """Draw what a backward pass has to keep."""
        own, _, call = bits.split(key)
        return UnitDraw(bits.indices(own, mask_shape).astype(jnp.uint16), bits.level(call))


class SharedDraw(NamedTuple):
    """Whether each unit is kept, 1 byte, and the coefficient of those that are."""

    keep: jax.Array
    value: jax.Array

    def coefficients(self, table: SharedArrays) -> jax.Array:
        """Put them together; the draw has already looked up all it needs from the table."""
        return jnp.where(self.keep, self.value, np.float32(0))


class SharedArrays(NamedTuple):
    """The arrays of a `quantal.table.SharedTable`."""

    keep_below: Any
    values: Any

    @classmethod
    def of(cls, dilution: Dilution) -> SharedArrays:
        """Return the table of a law, on the host."""
        made = host.shared_table(dilution)
        return cls(made.keep_below, made.values)

    @classmethod
    def shapes(cls) -> SharedArrays:
        """Return the shapes and types of the arrays."""
        return cls(_shape((CELLS,), jnp.int32), _shape((CELLS,), jnp.float32))

    def draw(self, key: jax.Array, mask_shape: Shape, p_shape: Shape) -> SharedDraw:
        """Draw what a backward pass has to keep."""
        own, shared, _ = bits.split(key)
        cell = bits.indices(shared, p_shape)
        keep = bits.levels(own, mask_shape) < _take(self.keep_below, cell)
        return SharedDraw(keep, _take(self.values, cell))


def coefficients(
    dilution: Dilution, mask_shape: Shape, p_shape: Shape | None, key: jax.Array | Key
) -> jax.Array:
    """Draw coefficients from the tables, by the plan of `quantal.keys`; float32.

    Examples
    --------
    >>> import quantal
    >>> coefficients(quantal.Dilution(0.5, 1.0), (3,), None, quantal.key(0))
    Array([0.6197041, 3.8779285, 0.       ], dtype=float32)
    """
    instance("dilution", dilution, Dilution, "a quantal.Dilution")
    mask_shape = shape("mask_shape", mask_shape)
    if p_shape is not None:
        p_shape = shape("p_shape", p_shape)
        if not broadcasts(p_shape, mask_shape):
            raise wrong_value("p_shape", f"a shape that broadcasts to {mask_shape}", p_shape)
    table = table_on_device(UnitArrays if p_shape is None else SharedArrays, dilution)
    return _coefficients(bits.typed_key(key), table, mask_shape, p_shape)


@functools.partial(jax.jit, static_argnums=(2, 3))  # also in eager code: one dispatch
def _coefficients(key: jax.Array, table: Any, *shapes: Any) -> jax.Array:
    return table.draw(key, *shapes).coefficients(table)


@functools.lru_cache(maxsize=64)  # 512 KB each
def table_on_device(kind: type[UnitArrays] | type[SharedArrays], dilution: Dilution) -> Any:
    """Return the table of a law as arrays of JAX, which a program takes in as constants."""
    with jax.ensure_compile_time_eval():  # arrays, also where a function is being traced
        return jax.tree.map(jnp.asarray, kind.of(dilution))


def _take(values: jax.Array, index: jax.Array) -> jax.Array:
    return values.at[index].get(mode="promise_in_bounds")
