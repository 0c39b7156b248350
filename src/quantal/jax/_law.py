"""A law as arrays, its table among them, which compiled functions take as an argument."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
from jax import numpy as jnp

from quantal._arguments import flag
from quantal.dilution import Dilution, Vary
from quantal.jax._coefficients import SharedArrays, UnitArrays, table_on_device

__all__ = ["Law", "law"]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=("rate", "alpha", "table"),
    meta_fields=("vary", "unit_mean"),
)
@dataclass(frozen=True)
class Law:
    """A law as arrays, its table among them: an argument of compiled functions.

    `law` makes it. `dilute` and the layers take it in the place of the rate.
    """

    rate: jax.Array
    alpha: jax.Array
    table: UnitArrays | SharedArrays
    vary: Vary = "pq"
    unit_mean: bool = False


def law(
    rate: float,
    alpha: float | None = None,
    *,
    vary: Vary = "pq",
    unit_mean: bool = False,
    shared_p: bool = False,
) -> Law:
    """Return a law that can change from step to step in compiled code.

    The table (512 KB) is made here, on the host, and then passed to the program as an argument: no
    step waits for the host, and no new law needs a compilation.

    Parameters
    ----------
    rate, alpha, vary, unit_mean
        As in `quantal.Dilution`.
    shared_p : bool
        Whether it is for a layer with ``p_broadcast_dims``, which needs another table.

    Examples
    --------
    >>> import quantal.jax
    >>> step = jax.jit(lambda x, law, key: quantal.jax.dilute(x, law, key=key))
    >>> for alpha in (1.0, 2.0):
    ...     print(step(jnp.ones(3), law(0.5, alpha), jax.random.key(0)))
    [0.6197041 3.8779285 0.       ]
    [0.765389  3.5688155 0.       ]
    """
    known = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    kind = SharedArrays if flag("shared_p", shared_p) else UnitArrays
    table = table_on_device(kind, known)
    rates = jnp.asarray(known.rate, jnp.float32), jnp.asarray(known.alpha, jnp.float32)
    return Law(*rates, table, known.vary, known.unit_mean)
