"""QSD as an Equinox module, in the place of ``eqx.nn.Dropout``."""

from __future__ import annotations

import numbers
import warnings
from typing import cast

import equinox as eqx
import jax

from quantal._arguments import axes_as_given
from quantal._errors import wrong_type, wrong_value
from quantal._granularity import Axes
from quantal.dilution import Vary
from quantal.jax._functional import dilute
from quantal.jax._parameters import Number, Rate, is_random, law_of, mode
from quantal.jax._random_bits import NO_KEY
from quantal.keys import Key

__all__ = ["QSD"]

_DEFAULT = 0.5  # of eqx.nn.Dropout


@jax.tree_util.register_pytree_node_class
class StaticNumber(float):
    """A float that is not a leaf of a model, but part of its structure."""

    def tree_flatten(self) -> tuple[tuple[()], StaticNumber]:
        """Return no leaf, and itself."""
        return (), self

    @classmethod
    def tree_unflatten(cls, number: StaticNumber, leaves: tuple[()]) -> StaticNumber:
        """Return the very same object, which `equinox.tree_at` finds by its identity."""
        return number


class QSD(eqx.nn.Dropout):
    """Quantal Synaptic Dilution: ``eqx.nn.Dropout`` with an ``alpha``.

    Parameters
    ----------
    p : float, scalar jax.Array or quantal.jax.Law
        The probability in [0, 1] that a unit is dropped. A new float means a new compilation; an
        array, or a `quantal.jax.law` with its own alpha, can change without one.
    alpha : float or scalar jax.Array
        The homogeneity, above 0; ``inf`` is standard dropout. As a float, it is no leaf of the
        model: the leaves are those of ``eqx.nn.Dropout``, and checkpoints fit both.
    inference : bool
        True returns the input as it is; `equinox.nn.inference_mode` sets it.
    broadcast_dims : int or tuple of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : int or tuple of int
        Axes along which only the retain probability is shared; masks stay independent.
    vary, unit_mean
        As in `quantal.Dilution`.
    deterministic : bool, optional
        Equinox's old name of ``inference``; deprecated there, and so here.
    rate : optional
        Another name of ``p``, that of the other frameworks; give one of the two.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> layer = QSD(0.5, alpha=1.0)
    >>> layer(jnp.ones(4), key=jax.random.key(0))
    Array([0.6197041, 3.8779285, 0.       , 0.       ], dtype=float32)
    >>> eqx.nn.inference_mode(layer)(jnp.ones(4))
    Array([1., 1., 1., 1.], dtype=float32)
    """

    # Not a static field, so that it can be an array, and equinox.tree_at can change it.
    alpha: Number | None
    broadcast_dims: Axes = eqx.field(static=True)
    p_broadcast_dims: Axes = eqx.field(static=True)
    vary: Vary = eqx.field(static=True)
    unit_mean: bool = eqx.field(static=True)

    def __init__(
        self,
        p: Rate = _DEFAULT,
        alpha: Number | None = None,
        inference: bool = False,
        *,
        broadcast_dims: Axes = (),
        p_broadcast_dims: Axes = (),
        vary: Vary = "pq",
        unit_mean: bool = False,
        deterministic: bool | None = None,
        rate: Rate | None = None,
    ) -> None:
        if rate is not None:
            if p is not _DEFAULT:
                raise wrong_value("rate", "p or rate, not both", rate)
            p = rate
        law_of(p, alpha, vary, unit_mean)
        mode("inference", inference)
        mode("deterministic", deterministic)
        super().__init__(cast("float", p), inference, deterministic=deterministic)
        self.alpha = StaticNumber(alpha) if isinstance(alpha, numbers.Real) else alpha
        # As a static field can hold them, since Equinox compares these.
        self.broadcast_dims = axes_as_given("broadcast_dims", broadcast_dims)
        self.p_broadcast_dims = axes_as_given("p_broadcast_dims", p_broadcast_dims)
        self.vary = vary
        self.unit_mean = unit_mean

    @property
    def rate(self) -> Rate:
        """Another name of ``p``."""
        return self.p

    @jax.named_scope("quantal.jax.equinox.QSD")
    def __call__(
        self,
        x: jax.Array,
        *,
        key: jax.Array | Key | None = None,
        inference: bool | None = None,
        deterministic: bool | None = None,
    ) -> jax.Array:
        """Dilute an array.

        Parameters
        ----------
        x : jax.Array
            A floating-point array.
        key : jax.Array or quantal.Key
            The key of this draw; not needed in inference.
        inference : bool, optional
            Takes precedence over that of the constructor.
        deterministic : bool, optional
            Equinox's old name of ``inference``; deprecated there, and so here.
        """
        if mode("deterministic", deterministic) is not None:
            warnings.warn("QSD()(deterministic=...): use inference=...", stacklevel=2)
            inference = deterministic
        inference = mode("inference", inference)
        if inference is None:
            inference = mode("inference", self.inference)
        if key is None and not inference and is_random(self.p):
            raise RuntimeError(str(wrong_type("key", NO_KEY, key)))
        return dilute(
            x,
            self.p,
            self.alpha,
            key=key,
            training=not inference,
            vary=self.vary,
            unit_mean=self.unit_mean,
            broadcast_dims=self.broadcast_dims,
            p_broadcast_dims=self.p_broadcast_dims,
        )
