"""The ``example`` of `convert` and `sites`: inputs, or a function that runs the model."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax

from quantal._errors import wrong_type
from quantal.jax._monte_carlo import check_arrays

__all__ = ["Example", "runner"]

Example = Any


def runner(
    example: Example, call: Callable[..., Any]
) -> tuple[Callable[[Any, list[Any]], list[Any]], list[Any]]:
    """Return a function of (model, arrays) that runs a training pass, and the arrays.

    The function returns the arrays that the pass computes, so that it can be traced.

    Parameters
    ----------
    example
        A function of the model; or inputs: a tuple of positional arguments, a dict of keyword
        arguments, or a single argument.
    call : function
        How the library calls a model that is trained: ``call(model, *args, **kwargs)``.
    """
    if callable(example) and not hasattr(example, "dtype"):
        if not _takes_one(example):
            raise wrong_type("example", "inputs, or a function of the model", example)
        return lambda model, _: _arrays_in(example(model)), []
    args: tuple[Any, ...] = (example,)
    kwargs: dict[str, Any] = {}
    if isinstance(example, tuple):
        args = example
    elif isinstance(example, dict):
        args, kwargs = (), example
    leaves, structure = jax.tree.flatten((args, kwargs))
    places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")]
    check_arrays("example", [leaves[i] for i in places], shapes_will_do=True)

    def run(model: Any, arrays: list[Any]) -> list[Any]:
        filled = list(leaves)
        for i, array in zip(places, arrays, strict=True):
            filled[i] = array
        args, kwargs = jax.tree.unflatten(structure, filled)
        return _arrays_in(call(model, *args, **kwargs))

    return run, [leaves[i] for i in places]


def _arrays_in(made: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(made) if hasattr(leaf, "dtype")]


def _takes_one(function: Any) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a function without a signature
        return True
    return True
