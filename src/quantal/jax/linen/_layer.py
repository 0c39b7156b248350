"""QSD as a Flax Linen module, in the place of ``nn.Dropout``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
from flax import linen as nn

from quantal.dilution import Vary
from quantal.jax._functional import dilute
from quantal.jax._parameters import Number, is_random, law_of, mode
from quantal.keys import Key

__all__ = ["QSD", "diluted"]


@dataclass
class _RateAndAlpha:
    """The first fields of `QSD`: the fields of the last base class are the first arguments."""

    rate: Any  # a Rate; nn.Dropout says float
    alpha: Number | None = None


class QSD(nn.Dropout, _RateAndAlpha):
    """Quantal Synaptic Dilution: ``nn.Dropout`` with an ``alpha``.

    As with ``nn.Dropout``, ``apply`` needs ``rngs={"dropout": key}``, and ``init`` does not.

    Parameters
    ----------
    rate : float, scalar jax.Array or quantal.jax.Law
        The probability in [0, 1] that a unit is dropped. A new float means a new compilation; an
        array, or a `quantal.jax.law` with its own alpha, can change without one.
    alpha : float or scalar jax.Array
        The homogeneity, above 0; ``inf`` is standard dropout.
    broadcast_dims : sequence of int
        Axes along which one coefficient is shared.
    deterministic : bool, optional
        True returns the inputs as they are. To be given here or in the call.
    rng_collection : str
        The name of the random stream.
    p_broadcast_dims : sequence of int
        Axes along which only the retain probability is shared; masks stay independent.
    vary, unit_mean
        As in `quantal.Dilution`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> layer = QSD(0.5, alpha=1.0)
    >>> layer.apply({}, jnp.ones(4), deterministic=False, rngs={"dropout": jax.random.key(0)})
    Array([0.       , 0.       , 0.       , 2.6957088], dtype=float32)
    >>> layer.apply({}, jnp.ones(4), deterministic=True)
    Array([1., 1., 1., 1.], dtype=float32)
    """

    p_broadcast_dims: Sequence[int] = ()
    vary: Vary = "pq"
    unit_mean: bool = False

    def __post_init__(self) -> None:
        law_of(self.rate, self.alpha, self.vary, self.unit_mean)
        super().__post_init__()

    @nn.compact
    def __call__(
        self,
        inputs: jax.Array,
        deterministic: bool | None = None,
        rng: jax.Array | Key | None = None,
    ) -> jax.Array:
        """Dilute the inputs.

        Parameters
        ----------
        inputs : jax.Array
            A floating-point array.
        deterministic : bool, optional
            To be given here or in the constructor.
        rng : jax.Array or quantal.Key, optional
            A key to use instead of one from the stream ``rng_collection``.
        """
        return diluted(
            self,
            inputs,
            deterministic,
            rng,
            alpha=self.alpha,
            vary=self.vary,
            unit_mean=self.unit_mean,
            p_broadcast_dims=self.p_broadcast_dims,
        )


def diluted(
    module: nn.Module,
    inputs: jax.Array,
    deterministic: bool | None = None,
    rng: jax.Array | Key | None = None,
    *,
    alpha: Number | None,
    **options: Any,
) -> jax.Array:
    """Return what QSD gives in the place of a module with the fields of ``nn.Dropout``."""
    modes = (mode("deterministic", each) for each in (module.deterministic, deterministic))
    deterministic = nn.merge_param("deterministic", *modes)
    if rng is None and not deterministic and is_random(module.rate):
        rng = module.make_rng(module.rng_collection)
    return dilute(
        inputs,
        module.rate,
        alpha,
        key=rng,
        training=not deterministic,
        broadcast_dims=module.broadcast_dims,
        **options,
    )
