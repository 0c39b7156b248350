"""QSD as a Flax NNX module, in the place of ``nnx.Dropout``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import jax
from flax import nnx

from quantal._arguments import axes_as_given
from quantal._errors import wrong_type, wrong_value
from quantal.dilution import Vary
from quantal.jax._functional import dilute
from quantal.jax._law import Law
from quantal.jax._parameters import Number, Rate, is_random, law_of, mode
from quantal.jax._random_bits import typed_key
from quantal.keys import Key

__all__ = ["QSD"]

_UNDECIDED = """No `deterministic` argument was provided to Dropout layer QSD. Choose one:
1. QSD(..., deterministic=True/False), in the constructor
2. self.dropout(x, deterministic=True/False), in the call
3. nnx.view(model, deterministic=True/False), or model.train() and model.eval()"""

_RNGS = "an nnx.Rngs, an nnx.RngStream, a quantal.key"
_NO_RNGS = """`deterministic` is False, but no `rngs` argument was provided to Dropout layer QSD.
Choose one:
1. QSD(..., rngs=nnx.Rngs(0)), in the constructor
2. self.dropout(x, rngs=rngs), in the call"""


class QSD(nnx.Dropout):
    """Quantal Synaptic Dilution: ``nnx.Dropout`` with an ``alpha``.

    The random state of a model is the same as with ``nnx.Dropout``, so checkpoints fit both.

    Parameters
    ----------
    rate : float, scalar jax.Array or quantal.jax.Law
        The probability in [0, 1] that a unit is dropped. A new float means a new compilation; an
        array, or a `quantal.jax.law` with its own alpha, can change without one.
    alpha : float or scalar jax.Array
        The homogeneity, above 0; ``inf`` is standard dropout.
    broadcast_dims : sequence of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : sequence of int
        Axes along which only the retain probability is shared; masks stay independent.
    vary, unit_mean
        As in `quantal.Dilution`.
    deterministic : bool, optional
        True returns the inputs as they are. ``model.train()`` and ``model.eval()`` set it; None
        leaves it to the call.
    rng_collection : str
        The name of the random stream.
    rngs : nnx.Rngs, nnx.RngStream or quantal.Key, optional
        The source of keys; of a `quantal.key`, call number n takes ``key.fold_in(n)``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> layer = QSD(0.5, alpha=1.0, rngs=nnx.Rngs(0))
    >>> layer(jnp.ones(4))
    Array([2.756429, 0.      , 0.      , 0.      ], dtype=float32)
    >>> layer.eval()
    >>> layer(jnp.ones(4))
    Array([1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self,
        rate: Rate,
        alpha: Number | None = None,
        *,
        broadcast_dims: Sequence[int] = (),
        p_broadcast_dims: Sequence[int] = (),
        vary: Vary = "pq",
        unit_mean: bool = False,
        deterministic: bool | None = False,
        rng_collection: str = "dropout",
        rngs: nnx.Rngs | nnx.RngStream | Key | None = None,
    ) -> None:
        law_of(rate, alpha, vary, unit_mean)
        if not isinstance(rngs, nnx.Rngs | nnx.RngStream | Key | None):
            raise wrong_type("rngs", f"{_RNGS} or None", rngs)
        if not isinstance(rng_collection, str):
            raise wrong_type("rng_collection", "the name of a random stream", rng_collection)
        deterministic = mode("deterministic", deterministic)
        if isinstance(rngs, nnx.Rngs):
            _stream(rngs, rng_collection)
        if isinstance(rate, Law):
            rate = nnx.data(rate)
        super().__init__(
            cast("float", rate),
            broadcast_dims=cast("Sequence[int]", axes_as_given("broadcast_dims", broadcast_dims)),
            deterministic=deterministic,
            rng_collection=rng_collection,
            rngs=None if isinstance(rngs, Key) else rngs,
        )
        if isinstance(rngs, Key):  # a stream folds in its count, as a portable key needs
            self.rngs = nnx.Rngs(**{rng_collection: typed_key(rngs)})[rng_collection]
        self.alpha = alpha
        self.p_broadcast_dims = axes_as_given("p_broadcast_dims", p_broadcast_dims)
        self.vary = vary
        self.unit_mean = unit_mean

    def __call__(
        self,
        inputs: jax.Array,
        *,
        deterministic: bool | None = None,
        rngs: nnx.Rngs | nnx.RngStream | jax.Array | Key | None = None,
    ) -> jax.Array:
        """Dilute the inputs.

        Parameters
        ----------
        inputs : jax.Array
            A floating-point array.
        deterministic : bool, optional
            Takes precedence over that of the constructor.
        rngs : nnx.Rngs, nnx.RngStream, jax.Array or quantal.Key, optional
            Takes precedence over those of the constructor.
        """
        deterministic = mode("deterministic", deterministic)
        if deterministic is None:
            deterministic = mode("deterministic", self.deterministic)
        if deterministic is None:
            raise ValueError(_UNDECIDED)
        # Where nothing is drawn, no stream is needed, and none is advanced.
        draws = not deterministic and is_random(self.rate)
        return dilute(
            inputs,
            self.rate,
            self.alpha,
            key=self._key(self.rngs if rngs is None else rngs) if draws else None,
            training=not deterministic,
            vary=self.vary,
            unit_mean=self.unit_mean,
            broadcast_dims=self.broadcast_dims,
            p_broadcast_dims=self.p_broadcast_dims,
        )

    def _key(self, rngs: nnx.Rngs | nnx.RngStream | jax.Array | Key | None) -> jax.Array | Key:
        if rngs is None:
            raise ValueError(_NO_RNGS)
        if isinstance(rngs, nnx.Rngs):
            return _stream(rngs, self.rng_collection)()
        if isinstance(rngs, nnx.RngStream):
            return rngs()
        if isinstance(rngs, jax.Array | Key):
            return rngs
        raise wrong_type("rngs", f"{_RNGS}, or a JAX key", rngs)


def _stream(rngs: nnx.Rngs, name: str) -> nnx.RngStream:
    try:
        return rngs[name]
    except KeyError:
        raise wrong_value("rngs", f"streams with {name!r} or 'default' among them", rngs) from None
