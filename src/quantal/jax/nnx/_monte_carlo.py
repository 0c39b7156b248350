"""Monte-Carlo predictions of an NNX model: masks on, all else as in evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import jax
from flax import nnx
from jax import numpy as jnp

from quantal._prediction import Prediction, count_of_draws
from quantal.jax._monte_carlo import moments
from quantal.jax._random_bits import typed_key
from quantal.jax.nnx._convert import places
from quantal.keys import Key

__all__ = ["masks_on", "predict_mc"]

Model = TypeVar("Model")


@contextmanager
def masks_on(model: Model, native: bool = False) -> Iterator[Model]:
    """Draw masks while everything else is as it is, as in ``model.eval()``.

    Sets ``deterministic`` to False in the QSD layers alone, and back when the block ends, however
    it ends. A ``deterministic`` that the model's code passes in its calls still takes precedence.

    Parameters
    ----------
    model : nnx.Module
        Any module.
    native : bool
        Whether to turn on Flax's own dropout too.

    Examples
    --------
    >>> from quantal.jax.nnx import QSD
    >>> model = nnx.Sequential(QSD(0.5, alpha=1.0, rngs=nnx.Rngs(0)))
    >>> model.eval()
    >>> with masks_on(model):
    ...     model(jnp.ones(4))
    Array([2.756429, 0.      , 0.      , 0.      ], dtype=float32)
    """
    switched = [
        (place.module, place.module.deterministic)
        for place in places(model)
        if (native or place.site.alpha is not None)
        and isinstance(place.module, nnx.Dropout | nnx.MultiHeadAttention)
    ]
    try:
        for module, _ in switched:
            module.deterministic = False
        yield model
    finally:
        for module, before in switched:
            module.deterministic = before


def predict_mc(
    model: Any,
    x: Any,
    n: int,
    *,
    key: jax.Array | Key,
    call: Callable[[Any, Any, nnx.Rngs], Any] | None = None,
) -> Prediction:
    """Return the mean and the standard deviation of n predictions with masks on.

    The model is left as it was, its random streams included; memory does not grow with n.

    Parameters
    ----------
    model : nnx.Module
        Any module, in evaluation as a rule: what is not QSD stays in its present mode.
    x : array or tree of arrays
        What the model is called with.
    n : int
        How many predictions, at least 2.
    key : jax.Array or quantal.Key
        The key of the draws, from which every random stream of the model is seeded.
    call : function, optional
        ``call(model, x, rngs)``, where ``model(x)`` is not right; ``rngs`` is an ``nnx.Rngs`` of
        this draw. A function made anew for each prediction is compiled anew.

    Examples
    --------
    >>> from quantal.jax.nnx import QSD
    >>> model = nnx.Sequential(QSD(0.5, alpha=1.0, rngs=nnx.Rngs(0)))
    >>> mean, std = predict_mc(model, jnp.ones(3), 1000, key=jax.random.key(0))
    >>> f"{mean[0]:.1f} ± {std[0]:.1f}"
    '1.3 ± 1.5'
    """
    with masks_on(model):
        graphdef, streams, rest = nnx.split(model, nnx.RngState, ...)
    return _predict(graphdef, count_of_draws(n), call or _call, streams, rest, x, typed_key(key))


def _call(model: Any, x: Any, rngs: nnx.Rngs) -> Any:
    return model(x)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _predict(
    graphdef: Any, n: int, call: Any, streams: Any, rest: Any, x: Any, key: jax.Array
) -> Prediction:
    def draw(key: jax.Array) -> Any:
        own, given = jax.random.split(key)
        # Variables of this trace, which the model may change.
        fresh = jax.tree.map(lambda leaf: leaf, rest)
        model = nnx.merge(graphdef, _seeded(streams, own), fresh)
        return call(model, x, nnx.Rngs(given))

    return moments(draw, key, n)


def _seeded(streams: Any, key: jax.Array) -> Any:
    """Return random states with keys of their own and counts of 0."""
    leaves, structure = jax.tree.flatten(streams)
    for i, leaf in enumerate(leaves):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            fresh = jax.random.fold_in(key, i)
            leaves[i] = jax.random.split(fresh, leaf.shape) if leaf.shape else fresh
        else:
            leaves[i] = jnp.zeros_like(leaf)
    return jax.tree.unflatten(structure, leaves)
