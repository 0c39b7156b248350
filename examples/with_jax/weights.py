"""Weights between the layout of `initial` and that of the models."""

from __future__ import annotations

from typing import Any

import numpy as np
from flax import nnx
from jax import numpy as jnp
from numpy.typing import NDArray

from examples.with_jax.models import Model

__all__ = ["dump", "load"]

# What Flax calls by another name, by how it ends.
_NAMES = {
    "embedding/embedding": "embedding",
    "/cell/dense_i/kernel": "/kernel",
    "/cell/dense_h/kernel": "/recurrent",
    "/cell/dense_h/bias": "/bias",  # of a GRU: the second row of it
    "/cell/dense_i/bias": "/bias0",  # of a GRU: the first row
}


def load(model: Model, weights: dict[str, NDArray]) -> None:
    """Give a model its weights; running statistics start with a mean of 0 and a variance of 1."""
    given = dict(weights)
    for name, both in weights.items():
        if name.endswith("/bias") and both.ndim == 2:
            given[f"{name}0"], given[name] = both
    params = nnx.to_flat_state(nnx.state(model, nnx.Param))
    for path, param in params:
        value = given.pop(_name(path))
        if value.shape != param.shape:
            raise ValueError(f"{_name(path)} has the shape {value.shape}, not {param.shape}")
        param.set_value(jnp.asarray(value, param.dtype))
    if given:
        raise ValueError(f"the model has no {', '.join(given)}")
    stats = nnx.to_flat_state(nnx.state(model, nnx.BatchStat))
    for path, stat in stats:  # as exact as the weights: Flax alone makes them float32
        stat.set_value(
            jnp.full(stat.shape, {"mean": 0, "var": 1}[str(path[-1])], params[0][1].dtype)
        )
    nnx.update(model, nnx.from_flat_state([*params, *stats]))


def dump(params: nnx.State) -> dict[str, NDArray]:
    """Return the weights of a model's parameters."""
    flat = nnx.to_flat_state(params)
    found = {_name(path): np.asarray(param.get_value()) for path, param in flat}
    for name in [name for name in found if name.endswith("/bias0")]:
        whole = name.removesuffix("0")
        found[whole] = np.stack([found.pop(name), found[whole]])
    return found


def _name(path: tuple[Any, ...]) -> str:
    name = ""
    for part in path:
        name += str(part + 1) if isinstance(part, int) else f"/{part}"
    name = name.removeprefix("/")
    for end, canonical in _NAMES.items():
        if name.endswith(end):
            return name.removesuffix(end) + canonical
    return name
