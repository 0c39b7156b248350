"""Monte-Carlo predictions of an NNX model: masks on, everything else as in evaluation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar, cast

import jax
from flax import nnx
from jax import numpy as jnp

from quantal._arguments import flag
from quantal._prediction import Prediction, count_of_draws, places_that_draw
from quantal._switches import Switches
from quantal.jax._monte_carlo import check_arrays, mean_and_std
from quantal.jax._random_bits import typed_key
from quantal.jax.nnx._bridge import linen_module_in
from quantal.jax.nnx._find_sites import find_sites
from quantal.keys import Key

__all__ = ["masks_on", "predict_mc"]

Model = TypeVar("Model")


@contextmanager
def masks_on(model: Model, *, native: bool = False) -> Iterator[Model]:
    """Let QSD draw while everything else keeps its mode, that of ``model.eval()`` for instance.

    Sets ``deterministic`` to False in the QSD layers alone, and back when the block ends, however
    it ends. A ``deterministic`` that the model's code passes in its calls still takes precedence.

    Parameters
    ----------
    model : nnx.Module
        Any module with QSD in it. The block is given the same one.
    native : bool
        Whether to turn on Flax's own dropout too.

    Notes
    -----
    A mode belongs to a model, not to a thread: while one thread is in this context, the others
    see the masks too. Several may be in it at once, with the same ``native``.

    Examples
    --------
    >>> from quantal.jax.nnx import QSD
    >>> model = nnx.Sequential(QSD(0.5, alpha=1.0, rngs=nnx.Rngs(0)))
    >>> model.eval()
    >>> with masks_on(model):
    ...     model(jnp.ones(4))
    Array([2.756429, 0.      , 0.      , 0.      ], dtype=float32)
    """
    native = flag("native", native)
    layers = [place for place in find_sites(model) if place.how is None]  # code has no mode
    every = [place.module for place in places_that_draw(layers, native)]
    drawing = [module for module in every if linen_module_in(module) is None]
    in_linen = _masks_on_in_linen(native) if len(drawing) < len(every) else nullcontext()
    with _MODES.set((module, False) for module in drawing), in_linen:
        yield model


def _set_mode(module: Any, deterministic: bool | None) -> None:
    module.deterministic = deterministic


_MODES = Switches(lambda module: module.deterministic, _set_mode)


def predict_mc(
    model: Any,
    x: Any,
    n: int,
    *,
    key: jax.Array | Key,
    call: Callable[[Any, Any, nnx.Rngs], Any] | None = None,
    native: bool = False,
    output: Callable[[Any], Any] | None = None,
    samples: bool = False,
) -> Prediction:
    """Return the mean and the standard deviation of n predictions with masks on.

    The model is left as it was, its random streams included. Memory does not grow with n, unless
    the samples are asked for.

    Parameters
    ----------
    model : nnx.Module
        A module with QSD, usually in evaluation mode: everything else keeps its mode.
    x : array or tree of arrays
        What the model is called with.
    n : int
        How many predictions, at least 2.
    key : jax.Array or quantal.Key
        The key of the draws, from which every random stream of the model is seeded.
    call : function, optional
        ``call(model, x, rngs)``, where ``model(x)`` is not right; ``rngs`` is an ``nnx.Rngs`` of
        this draw. A function that is made for each call is compiled each time.
    native : bool
        Whether Flax's own dropout draws too.
    output : function, optional
        What to apply to each prediction before the average, such as ``jax.nn.softmax``.
    samples : bool
        Whether to keep the predictions themselves, as ``samples`` of the result.

    Examples
    --------
    >>> from quantal.jax.nnx import QSD
    >>> model = nnx.Sequential(QSD(0.5, alpha=1.0, rngs=nnx.Rngs(0)))
    >>> mean, std = predict_mc(model, jnp.ones(3), 1000, key=jax.random.key(0))
    >>> f"{mean[0]:.1f} ± {std[0]:.1f}"
    '1.3 ± 1.5'
    """
    check_arrays("x", x)
    n, key = count_of_draws(n, samples, output=output, call=call), typed_key(key)
    call = call or _call
    with masks_on(model, native=native):
        graphdef, streams, rest = cast("Any", nnx.split(model, nnx.RngState, ...))
        return Prediction(*_predict(graphdef, n, call, output, samples, streams, rest, x, key))


def _masks_on_in_linen(native: bool) -> AbstractContextManager[None]:
    from quantal.jax.linen._intercept import intercepting

    return intercepting(masks="all" if native else "QSD")


def _call(model: Any, x: Any, rngs: nnx.Rngs) -> Any:
    return model(x)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4))
def _predict(
    graphdef: Any,
    n: int,
    call: Any,
    output: Any,
    samples: bool,
    streams: Any,
    rest: Any,
    x: Any,
    key: jax.Array,
) -> tuple[Any, Any, Any]:
    def predict(key: jax.Array) -> Any:
        own, given = jax.random.split(key)
        # Variables of this trace, which the model may change.
        fresh = jax.tree.map(lambda leaf: leaf, rest)
        model = nnx.merge(graphdef, _seeded(streams, own), fresh)
        return call(model, x, nnx.Rngs(given))

    return mean_and_std(predict, key, n, samples, output)


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
