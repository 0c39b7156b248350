"""Monte-Carlo predictions of a Haiku model: masks on, everything else as in evaluation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import haiku as hk
import jax

from quantal._arguments import flag, instance
from quantal._errors import wrong_type
from quantal._prediction import Prediction, Tally, count_of_draws
from quantal.jax._monte_carlo import arrays_apart, check_arrays, mean_and_std
from quantal.jax._random_bits import typed_key
from quantal.jax.haiku._convert import change_functions, check_model
from quantal.jax.haiku._functional import counting
from quantal.jax.haiku._reroute import Rerouting, rerouted
from quantal.keys import Key

__all__ = ["masks_on", "predict_mc"]

Model = TypeVar("Model")

_WITH_STATE = (hk.TransformedWithState, hk.MultiTransformedWithState)
# Haiku's own modules that keep statistics of what they see in training.
_WITH_STATISTICS = (hk.BatchNorm, hk.nets.VectorQuantizerEMA)


@contextmanager
def masks_on(model: Model, *, native: bool = False) -> Iterator[Model]:
    """Yield a model in which QSD draws, while all else is as in evaluation.

    Haiku has no modes: a model drops units if its own arguments say so, such as
    ``is_training=True``. Call the model that this yields as in training. Its ``hk.dropout`` that
    is not QSD does nothing, and its batch normalisation uses the statistics that it has. A block
    in which the model runs and nothing draws is reported at its end.

    Parameters
    ----------
    model : hk.Transformed, hk.TransformedWithState, or their multi-transformed kin
        A model with QSD in it.
    native : bool
        Whether Haiku's own dropout draws too.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from quantal.jax.haiku import dropout
    >>> def network(x, is_training):
    ...     x = hk.BatchNorm(False, False, 0.9)(x, is_training)
    ...     return dropout(hk.next_rng_key(), 0.5, x, alpha=1.0) if is_training else x
    >>> model, key, x = hk.transform_with_state(network), jax.random.key(0), jnp.ones((1, 4))
    >>> params, state = model.init(key, x, True)
    >>> with masks_on(model) as drawing:
    ...     y, after = drawing.apply(params, state, key, x, True)
    >>> y.shape, bool(jax.tree.all(jax.tree.map(jnp.array_equal, state, after)))
    ((1, 4), True)
    """
    check_model(model)
    native, tally = flag("native", native), Tally()
    yield change_functions(lambda run: _drawing(run, native, tally), model)
    tally.check(native)


def _drawing(run: Any, native: bool, tally: Tally) -> Any:
    """Return a function that runs another one with masks on."""

    @functools.wraps(run)
    def drawing_run(*args: Any, **kwargs: Any) -> Any:
        rerouting = Rerouting(None, native=native)
        with rerouted(rerouting, tally), counting(tally), hk.intercept_methods(_as_in_evaluation):
            return run(*args, **kwargs)

    return drawing_run


def _as_in_evaluation(method: Any, args: Any, kwargs: Any, context: Any) -> Any:
    """Make a module with statistics use its own ones, and not those of the batch."""
    if isinstance(context.module, _WITH_STATISTICS) and context.method_name == "__call__":
        call = inspect.signature(context.orig_method).bind(*args, **kwargs)
        call.arguments["is_training"] = False
        args, kwargs = call.args, call.kwargs
    return method(*args, **kwargs)


def predict_mc(
    model: Any,
    params: Any,
    x: Any,
    n: int,
    *,
    key: jax.Array | Key,
    state: Any = None,
    native: bool = False,
    output: Callable[[Any], Any] | None = None,
    samples: bool = False,
    **kwargs: Any,
) -> Prediction:
    """Return the mean and the standard deviation of n predictions with masks on.

    Memory does not grow with n, unless the samples are asked for.

    Parameters
    ----------
    model : hk.Transformed or hk.TransformedWithState
        A model with QSD.
    params : tree of arrays
        Its parameters.
    x : array or tree of arrays
        What the model is called with.
    n : int
        How many predictions, at least 2.
    key : jax.Array or quantal.Key
        The key of the draws.
    state : tree of arrays, optional
        The state of a model of ``hk.transform_with_state``. It stays as it is.
    native : bool
        Whether Haiku's own dropout draws too.
    output : function, optional
        What to apply to each prediction before the average, such as ``jax.nn.softmax``.
    samples : bool
        Whether to keep the predictions themselves, as ``samples`` of the result.
    **kwargs
        Passed on to the model. Among them is what makes it draw, such as ``is_training=True``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> model = hk.transform(lambda x: hk.dropout(hk.next_rng_key(), 0.5, x))
    >>> from quantal.jax.haiku import convert
    >>> model, key = convert(model, alpha=1.0), jax.random.key(0)
    >>> mean, std = predict_mc(model, {}, jnp.ones(3), 1000, key=key)
    >>> f"{mean[0]:.1f} ± {std[0]:.1f}"
    '1.3 ± 1.5'
    """
    check_model(model)
    if not callable(model.apply):
        raise wrong_type("model", "what hk.transform or hk.transform_with_state returns", model)
    instance("params", params, Mapping, "a mapping of parameters, as from model.init")
    check_arrays("x", x)
    n, key = count_of_draws(n, samples, output=output), typed_key(key)
    native = flag("native", native)
    given = (params, state or {}) if isinstance(model, _WITH_STATE) else (params,)
    traced, static = arrays_apart(kwargs)
    return Prediction(*_predict(model, n, native, output, samples, static, given, x, traced, key))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _predict(
    model: Any,
    n: int,
    native: bool,
    output: Any,
    samples: bool,
    static: Any,
    given: Any,
    x: Any,
    traced: Any,
    key: jax.Array,
) -> tuple[Any, Any, Any]:
    def predict(key: jax.Array) -> Any:
        with masks_on(model, native=native) as drawing:
            predicted = drawing.apply(*given, key, x, **dict(static), **traced)
        return predicted if len(given) == 1 else predicted[0]  # without the state

    return mean_and_std(predict, key, n, samples, output)
