"""Mean and standard deviation of many predictions, in a fixed amount of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal._errors import wrong_type

__all__ = ["arrays_apart", "check_arrays", "mean_and_std"]


def check_arrays(name: str, tree: Any, shapes_will_do: bool = False) -> None:
    """Raise where something is no array or tree of arrays."""
    try:
        jax.eval_shape(lambda tree: tree, tree)
        if not shapes_will_do and any(_only_has_a_shape(leaf) for leaf in jax.tree.leaves(tree)):
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise wrong_type(name, "an array, or a tree of arrays", tree) from None


def arrays_apart(kwargs: dict[str, Any]) -> tuple[dict[str, Any], tuple[tuple[str, Any], ...]]:
    """Return the arguments that are trees of arrays, to be traced, and all others, to be hashed."""
    arrays = {name: value for name, value in kwargs.items() if _is_arrays(value)}
    return arrays, tuple((name, value) for name, value in kwargs.items() if name not in arrays)


def _is_arrays(value: Any) -> bool:
    leaves = jax.tree.leaves(value)
    return bool(leaves) and all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves)


def _only_has_a_shape(leaf: Any) -> bool:
    array = isinstance(leaf, jax.Array | np.ndarray | np.generic) or hasattr(leaf, "__jax_array__")
    return hasattr(leaf, "shape") and not array


def mean_and_std(
    predict: Callable[[jax.Array], Any],
    key: jax.Array,
    n: int,
    samples: bool = False,
    output: Callable[[Any], Any] | None = None,
) -> tuple[Any, Any, Any]:
    """Return the mean and the sample standard deviation of ``predict(key)`` over n keys.

    The third result is the stacked predictions, if they are asked for, or None. ``output`` is
    applied to each prediction first.

    Examples
    --------
    >>> key = jax.random.key(0)
    >>> mean, std, _ = mean_and_std(lambda key: {"y": jax.random.normal(key)}, key, 1000)
    >>> bool(abs(mean["y"]) < 0.15), bool(abs(std["y"] - 1) < 0.15)
    (True, True)
    """

    def draw(key: jax.Array) -> Any:
        predicted = predict(key)
        return predicted if output is None else output(predicted)

    keys = jax.random.split(key, n)
    zeros = jax.tree.map(
        lambda y: jnp.zeros(y.shape, jnp.promote_types(y.dtype, jnp.float32)),
        jax.eval_shape(draw, keys[0]),
    )

    def step(running: tuple[Any, Any], item: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        mean, squares = running
        key, count = item
        drawn = draw(key)
        # Welford's update: no difference of large sums.
        away = jax.tree.map(lambda y, m: y.astype(m.dtype) - m, drawn, mean)
        mean = jax.tree.map(lambda m, d: m + d / count.astype(m.dtype), mean, away)
        share = (count - 1) / count
        squares = jax.tree.map(lambda s, d: s + d * d * share.astype(s.dtype), squares, away)
        return (mean, squares), drawn if samples else None

    counts = jnp.arange(1, n + 1, dtype=jnp.float32)
    (mean, squares), drawn = lax.scan(step, (zeros, zeros), (keys, counts))
    return mean, jax.tree.map(lambda s: jnp.sqrt(s / (n - 1)), squares), drawn
