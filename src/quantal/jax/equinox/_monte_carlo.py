"""Monte-Carlo predictions of an Equinox model: masks on, everything else as in inference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import equinox as eqx
import jax

from quantal._arguments import flag
from quantal._prediction import Prediction, count_of_draws, places_that_draw
from quantal.jax._monte_carlo import mean_and_std
from quantal.jax._random_bits import typed_key
from quantal.jax.equinox._find_sites import find_sites, is_dropout
from quantal.jax.equinox._layer import QSD
from quantal.keys import Key

__all__ = ["masks_on", "predict_mc"]

Model = TypeVar("Model")


@contextmanager
def masks_on(model: Model, *, native: bool = False) -> Iterator[Model]:
    """Yield a model whose QSD draws, and which is otherwise the same.

    An Equinox model cannot be changed: in the block, use the model that this yields.

    Parameters
    ----------
    model : eqx.Module
        Any module with QSD in it.
    native : bool
        Whether to turn on Equinox's own dropout too.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> model = eqx.nn.inference_mode(QSD(0.5, alpha=1.0))
    >>> with masks_on(model) as drawing:
    ...     drawing(jnp.ones(4), key=jax.random.key(0))
    Array([0.6197041, 3.8779285, 0.       , 0.       ], dtype=float32)
    """
    native = flag("native", native)
    places_that_draw((place for place in find_sites(model) if is_dropout(place.module)), native)

    def switch(node: Any) -> Any:
        if isinstance(node, QSD) or (native and is_dropout(node)):
            return eqx.nn.inference_mode(node, value=False)
        return node

    yield jax.tree.map(switch, model, is_leaf=is_dropout)


def predict_mc(
    model: Any,
    x: Any,
    n: int,
    *,
    key: jax.Array | Key,
    call: Callable[[Any, Any, jax.Array], Any] | None = None,
    native: bool = False,
    output: Callable[[Any], Any] | None = None,
    samples: bool = False,
) -> Prediction:
    """Return the mean and the standard deviation of n predictions with masks on.

    Memory does not grow with n, unless the samples are asked for.

    Parameters
    ----------
    model : eqx.Module
        A module with QSD, usually in inference mode: everything else keeps its mode.
    x : array or tree of arrays
        What the model is called with.
    n : int
        How many predictions, at least 2.
    key : jax.Array or quantal.Key
        The key of the draws.
    call : function, optional
        ``call(model, x, key)``, where ``model(x, key=key)`` is not right: for a batch, say, where
        the model takes one example. A function that is made for each call is compiled each time.
    native : bool
        Whether Equinox's own dropout draws too.
    output : function, optional
        What to apply to each prediction before the average, such as ``jax.nn.softmax``.
    samples : bool
        Whether to keep the predictions themselves, as ``samples`` of the result.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> mean, std = predict_mc(QSD(0.5, alpha=1.0), jnp.ones(3), 1000, key=jax.random.key(0))
    >>> f"{mean[0]:.1f} ± {std[0]:.1f}"
    '1.4 ± 1.5'
    """
    n, key = count_of_draws(n, samples, output=output, call=call), typed_key(key)
    call = call or _call
    with masks_on(model, native=native) as drawing:
        return Prediction(*_predict(drawing, x, key, n, call, output, bool(samples)))


def _call(model: Any, x: Any, key: jax.Array) -> Any:
    return model(x, key=key)


@eqx.filter_jit
def _predict(
    model: Any, x: Any, key: jax.Array, n: int, call: Any, output: Any, samples: bool
) -> tuple[Any, Any, Any]:
    def predict(key: jax.Array) -> Any:
        return call(model, x, key)

    return mean_and_std(predict, key, n, samples, output)
