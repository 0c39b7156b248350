"""Monte-Carlo predictions of a Linen model: masks on, everything else as it is called."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
from flax import linen as nn

from quantal._arguments import flag, instance
from quantal._errors import wrong_type
from quantal._prediction import Prediction, Tally, count_of_draws
from quantal.jax._monte_carlo import arrays_apart, check_arrays, mean_and_std
from quantal.jax._random_bits import typed_key
from quantal.jax.linen._convert import check_module
from quantal.jax.linen._intercept import intercepting
from quantal.keys import Key

__all__ = ["masks_on", "predict_mc"]


@contextmanager
def masks_on(module: nn.Module, *, native: bool = False) -> Iterator[nn.Module]:
    """Let QSD draw although the module is called for evaluation, with ``train=False`` say.

    QSD layers that run in the block draw, whatever ``deterministic`` says, and need the stream
    ``dropout``. Functions compiled elsewhere are compiled again in the block. Layers are
    created when they run, so a block in which nothing draws is reported only at its end.

    Parameters
    ----------
    module : nn.Module
        The module that is to run in the block, which is given the same one.
    native : bool
        Whether to turn on Flax's own dropout too.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from quantal.jax.linen import QSD
    >>> model = QSD(0.5, alpha=1.0, deterministic=True)
    >>> with masks_on(model):
    ...     model.apply({}, jnp.ones(4), rngs={"dropout": jax.random.key(0)})
    Array([0.       , 0.       , 0.       , 2.6957088], dtype=float32)
    """
    instance("module", module, nn.Module, "a flax.linen.Module")
    native = flag("native", native)
    tally = Tally()
    with intercepting(masks="all" if native else "QSD", tally=tally):
        yield module
    tally.check(native)


def predict_mc(
    module: nn.Module,
    variables: Any,
    x: Any,
    n: int,
    *,
    key: jax.Array | Key,
    native: bool = False,
    output: Callable[[Any], Any] | None = None,
    samples: bool = False,
    **kwargs: Any,
) -> Prediction:
    """Return the mean and the standard deviation of n predictions with masks on.

    Memory does not grow with n, unless the samples are asked for.

    Parameters
    ----------
    module : nn.Module
        Any module that is not bound.
    variables : tree of arrays
        Its variables.
    x : array or tree of arrays
        What the module is called with.
    n : int
        How many predictions, at least 2.
    key : jax.Array or quantal.Key
        The key of the draws, from which every random stream is seeded.
    native : bool
        Whether Flax's own dropout draws too.
    output : function, optional
        What to apply to each prediction before the average, such as ``jax.nn.softmax``.
    samples : bool
        Whether to keep the predictions themselves, as ``samples`` of the result.
    **kwargs
        Passed on to ``module.apply``, such as ``train=False``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from quantal.jax.linen import QSD
    >>> x, key = jnp.ones(3), jax.random.key(0)
    >>> mean, std = predict_mc(QSD(0.5, alpha=1.0), {}, x, 1000, key=key, deterministic=True)
    >>> f"{mean[0]:.1f} ± {std[0]:.1f}"
    '1.3 ± 1.5'
    """
    check_module(module)
    _check_variables(variables)
    check_arrays("x", x)
    native = flag("native", native)
    traced, static = arrays_apart(kwargs)
    n, key, held = count_of_draws(n, samples, output=output), typed_key(key), _Static(module)
    return Prediction(
        *_predict(held, n, native, output, samples, static, variables, x, traced, key)
    )


class _Static:
    """A module that `jax.jit` can tell from others: not all are hashable, but they have an ==."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __hash__(self) -> int:
        return hash(type(self.module))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and bool(self.module == other.module)


def _check_variables(variables: Any) -> None:
    expected = "a mapping of variables, as from module.init"
    instance("variables", variables, Mapping, expected)
    for name, collection in variables.items():
        if not isinstance(name, str) or not isinstance(collection, Mapping):
            raise wrong_type("variables", expected, variables)


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 3, 4, 5))
def _predict(
    held: _Static,
    n: int,
    native: bool,
    output: Any,
    samples: bool,
    static: Any,
    variables: Any,
    x: Any,
    traced: Any,
    key: jax.Array,
) -> tuple[Any, Any, Any]:
    def predict(key: jax.Array) -> Any:
        with masks_on(held.module, native=native) as module:
            # One key for all: each stream, of whatever name, is made from it.
            return module.apply(variables, x, rngs=key, **dict(static), **traced)

    return mean_and_std(predict, key, n, samples, output)
