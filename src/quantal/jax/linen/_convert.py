"""QSD in the place of dropout in an existing Linen model, and back."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from contextlib import AbstractContextManager
from typing import Any

import jax
from flax import linen as nn

from quantal._arguments import flag
from quantal._errors import wrong_type, wrong_value
from quantal._selection import Alpha, Pattern, Place
from quantal.jax._example import Example, runner
from quantal.jax._watch import unknown_places
from quantal.jax.linen._find_sites import Record
from quantal.jax.linen._intercept import Swap, intercepting
from quantal.sites import Sites

__all__ = ["check_module", "convert", "intercept", "revert", "sites"]


def convert(
    module: nn.Module,
    alpha: Alpha | None = None,
    *args: Any,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
    example: Example = None,
    **kwargs: Any,
) -> nn.Module:
    """Return a module in which every dropout that runs is QSD with the same rate.

    It is of a subclass of the module's class, with the same fields and one more, ``qsd``.
    Variables, random streams and calls are the same as before.

    Parameters
    ----------
    module : nn.Module
        Any module that is not bound; its ``nn.Dropout`` and the dropout of
        ``nn.MultiHeadDotProductAttention`` on its weights are swapped, at any depth and inside of
        lifted transformations. It stays as it is.
    alpha : float or function
        The homogeneity, or a function from the rate to it.
    *args, **kwargs
        The arguments of ``module.init``, arrays or their shapes. With them the module is traced,
        and what is wrong is reported now; without, dropout that cannot be swapped is reported when
        it runs, and a model with nothing to swap is not reported.
    include, exclude : str, function, list of these, or None
        Shell-style patterns of paths such as ``"encoder/*"``, or functions of (path, module).
    strict : bool
        True: dropout that cannot be converted is an error. False: it is a warning.
    example : function or inputs, optional
        As in `sites`: proves that no dropout was missed.

    Returns
    -------
    nn.Module
        A new module.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> model = nn.Sequential([nn.Dense(3), nn.Dropout(0.5, deterministic=False)])
    >>> key, x = jax.random.key(0), jnp.ones((1, 2))
    >>> sites(convert(model, 1.0, key, x), key, x)
    name      kind  rate  alpha  mean gain
    layers_1  QSD   0.5   1      1.333
    1 site, 1 of them QSD
    """
    check_module(module)
    swap = _swap(alpha, include, exclude, strict)
    if args or kwargs or example is not None:
        swap.selection.choose(_find_all_sites(module, args, kwargs, example))
    # A later conversion takes what the earlier ones have left.
    return _made(revert(module), (*getattr(module, "qsd", ()), swap))


def revert(module: nn.Module) -> nn.Module:
    """Return the module as it was before `convert`, with the fields that it has now.

    Examples
    --------
    >>> revert(convert(nn.Dropout(0.5), 1.0)) == nn.Dropout(0.5)
    True
    """
    check_module(module)
    before = vars(type(module)).get("_before_qsd")
    return module if before is None else _fields(module, before)


def sites(module: nn.Module, *args: Any, example: Example = None, **kwargs: Any) -> Sites:
    """List every place where a module drops units, and why some cannot be converted.

    Parameters
    ----------
    module : nn.Module
        Any module that is not bound.
    *args, **kwargs
        The arguments of ``module.init``, arrays or their shapes: the module is traced with them,
        since its layers come into being when it runs. Nothing is computed.
    example : function or inputs, optional
        Takes the place of these, and proves that no place is missing: a training pass is traced,
        and every mask that it draws is seen, wherever it comes from. Inputs are those of the call,
        such as ``(x, True)`` for ``(x, train)`` or a dict of keyword arguments; a function, such
        as ``lambda module: loss(module, variables, batch)``, is given the module.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> sites(nn.Dropout(0.5), jax.random.key(0), jnp.ones(3))
    name     kind     rate  alpha  mean gain
    (model)  Dropout  0.5   -      1
    1 site, 0 of them QSD
    """
    check_module(module)
    if example is None and not (args or kwargs):
        expected = "inputs, or a function of the module; or else the arguments of module.init"
        raise wrong_type("example", expected, example)
    return Sites(place.site for place in _find_all_sites(module, args, kwargs, example))


def intercept(
    alpha: Alpha | None = None,
    *,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
) -> AbstractContextManager[None]:
    """Put QSD in the place of dropout in every Linen module that runs in a block.

    For code that calls a module by itself, where `convert` cannot get at it.

    Parameters
    ----------
    alpha, include, exclude, strict
        As in `convert`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> layer = nn.Dropout(0.5, deterministic=False)
    >>> with intercept(alpha=1.0):
    ...     layer.apply({}, jnp.ones(4), rngs={"dropout": jax.random.key(0)})
    Array([0.       , 0.       , 0.       , 2.6957088], dtype=float32)
    """
    return intercepting((_swap(alpha, include, exclude, strict),))


def _swap(alpha: Alpha | None, include: Pattern, exclude: Pattern, strict: bool) -> Swap:
    include, exclude = (
        tuple(choices) if isinstance(choices, list | set) else choices
        for choices in (include, exclude)
    )
    swap = Swap(alpha, include, exclude, flag("strict", strict))
    _ = swap.selection  # which raises if they are wrong
    return swap


def _find_all_sites(module: nn.Module, args: Any, kwargs: Any, example: Example) -> list[Place]:
    """Return the places that a trace passes through, of ``init`` or of an example."""
    if example is None:
        run, arrays = runner((args, kwargs), _init)
    else:
        run, arrays = runner(example, _train)
    training_pass = functools.partial(run, module)
    record = Record(quiet=example is None)
    with intercepting(record=record):
        jax.eval_shape(training_pass, arrays)
    found = list(record.places.values())
    if example is None:
        return found
    # Converts all that is left, since inner conversions take precedence.
    with intercepting((_swap(1.0, None, None, False),), record=Record(quiet=False)):
        return found + unknown_places(training_pass, (arrays,), found)


def _init(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return module.init(*args, **kwargs)


def _train(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    keys = jax.random.split(jax.random.key(0))
    return module.init_with_output({"params": keys[0], "dropout": keys[1]}, *args, **kwargs)


def check_module(module: Any) -> None:
    """Raise if this is not a module, or one that is already part of a run."""
    if not isinstance(module, nn.Module):
        raise wrong_type("module", "a flax.linen.Module", module)
    if module.scope is not None or isinstance(module.parent, nn.Module):
        raise wrong_value("module", "a module that is not bound and has no parent", module)


def _made(module: nn.Module, swaps: tuple[Swap, ...]) -> nn.Module:
    kind: Any = type(module)
    return _fields(module, _with_qsd(kind), qsd=swaps)


def _fields(module: nn.Module, kind: Any, **changes: Any) -> nn.Module:
    """Return a module of another class, with the fields of this one that it has."""
    names = {f.name for f in dataclasses.fields(kind) if f.init} - {"parent"} - changes.keys()
    return kind(**{name: getattr(module, name) for name in names}, **changes)


@functools.cache
def _with_qsd(base: Any) -> Any:
    """Return a subclass whose methods run with QSD; of the same name, which names variables."""

    def __reduce__(self: Any) -> Any:  # noqa: N807
        return _made, (revert(self), self.qsd)

    members = {
        "__annotations__": {"qsd": tuple[Swap, ...]},
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__reduce__": nn.nowrap(__reduce__),
        "_before_qsd": base,
        "qsd": (),
    }
    methods = {name: _intercepted(method) for name, method in _methods(base)}
    return type(base)(base.__name__, (base,), methods | members)


def _methods(base: type[nn.Module]) -> list[tuple[str, Any]]:
    """Return the methods at which a run of a module can begin.

    They are its own, and those of every module that are given a method to run, which may be one of
    the original class: ``apply(variables, x, method=Model.encode)``.
    """
    given = ("apply", "init", "init_with_output")
    return [
        (name, method)
        for name, method in inspect.getmembers(base, inspect.isfunction)
        if name in given or (name == "__call__" or not hasattr(nn.Module, name))
    ]


def _intercepted(method: Any) -> Any:
    # Linen wraps the methods of modules. This one needs no wrapping, since it calls a wrapped one.
    @nn.nowrap
    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        with intercepting(self.qsd, 0 if self.scope is None else len(self.path)):
            return method(self, *args, **kwargs)

    return run
