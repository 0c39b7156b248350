"""``hk.dropout`` with an alpha."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import jax

from quantal._granularity import Axes
from quantal._prediction import Tally
from quantal.dilution import Vary
from quantal.jax._functional import dilute
from quantal.jax._parameters import Number, Rate
from quantal.keys import Key

__all__ = ["count_draw", "counting", "dropout"]


_tally: ContextVar[Tally | None] = ContextVar("_tally", default=None)


@contextmanager
def counting(tally: Tally) -> Iterator[None]:
    """Count a run, and the draws of QSD in it."""
    tally.runs += 1
    token = _tally.set(tally)
    try:
        yield
    finally:
        _tally.reset(token)


def count_draw() -> None:
    """Count a draw, if this is within `counting`."""
    if (tally := _tally.get()) is not None:
        tally.draws += 1


def dropout(
    rng: jax.Array | Key,
    rate: Rate,
    x: jax.Array,
    broadcast_dims: Axes = (),
    *,
    alpha: Number | None = None,
    p_broadcast_dims: Axes = (),
    vary: Vary = "pq",
    unit_mean: bool = False,
) -> jax.Array:
    """Dilute an array: in the place of ``hk.dropout``, with the same arguments and ``alpha``.

    Parameters
    ----------
    rng : jax.Array or quantal.Key
        The key of this draw, as from ``hk.next_rng_key()``.
    rate : float, scalar jax.Array or quantal.jax.Law
        The probability in [0, 1] that a unit is dropped.
    x : jax.Array
        A floating-point array.
    broadcast_dims : sequence of int
        Axes along which one coefficient is shared.
    alpha : float or scalar jax.Array
        The homogeneity, above 0; ``inf`` is standard dropout.
    p_broadcast_dims : int or tuple of int
        Axes along which only the retain probability is shared; masks stay independent.
    vary, unit_mean
        As in `quantal.Dilution`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> dropout(jax.random.key(0), 0.5, jnp.ones(4), alpha=1.0)
    Array([0.6197041, 3.8779285, 0.       , 0.       ], dtype=float32)
    """
    count_draw()
    return dilute(
        x,
        rate,
        alpha,
        key=rng,
        vary=vary,
        unit_mean=unit_mean,
        broadcast_dims=broadcast_dims,
        p_broadcast_dims=p_broadcast_dims,
    )
