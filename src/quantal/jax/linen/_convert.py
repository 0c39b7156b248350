"""QSD in the place of dropout in an existing Linen model, and back."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import jax
from flax import linen as nn

from quantal._errors import wrong_type, wrong_value
from quantal._selection import Alpha, Pattern
from quantal.jax._find_sites import Place, wanted
from quantal.jax.linen._intercept import Record, Swap, intercepting
from quantal.sites import Sites

__all__ = ["convert", "intercept", "revert", "sites"]


def convert(
    module: nn.Module,
    alpha: Alpha,
    *args: Any,
    include: Pattern = None,
    exclude: Pattern = None,
    strict: bool = True,
    **kwargs: Any,
) -> nn.Module:
    """Return a module with QSD in the place of every dropout that runs in it.

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
        Whether dropout that cannot be swapped is an error, or else a warning.

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
    _check(module)
    swap = _swap(alpha, include, exclude, strict)
    if args or kwargs:
        chosen, unreached = wanted(swap.selection, _places(module, args, kwargs))
        swap.selection.settle([place.site.name for place in chosen], unreached)
    # A later conversion takes what the earlier ones have left.
    return _made(revert(module), (*getattr(module, "qsd", ()), swap))


def revert(module: nn.Module) -> nn.Module:
    """Return the module as it was before `convert`; fields are those of now.

    Examples
    --------
    >>> revert(convert(nn.Dropout(0.5), 1.0)) == nn.Dropout(0.5)
    True
    """
    _check(module)
    before = vars(type(module)).get("_before_qsd")
    return module if before is None else _fields(module, before)


def sites(module: nn.Module, *args: Any, **kwargs: Any) -> Sites:
    """List every place where a module drops units, and why some cannot be swapped.

    Parameters
    ----------
    module : nn.Module
        Any module that is not bound.
    *args, **kwargs
        The arguments of ``module.init``, arrays or their shapes: the module is traced with them,
        since its layers come into being when it runs. Nothing is computed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> sites(nn.Dropout(0.5), jax.random.key(0), jnp.ones(3))
    name     kind     rate  alpha  mean gain
    (model)  Dropout  0.5   -      1
    1 site, 0 of them QSD
    """
    _check(module)
    return Sites(place.site for place in _places(module, args, kwargs))


def intercept(
    alpha: Alpha, *, include: Pattern = None, exclude: Pattern = None, strict: bool = True
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


def _swap(alpha: Alpha, include: Pattern, exclude: Pattern, strict: bool) -> Swap:
    include, exclude = (
        tuple(choices) if isinstance(choices, list | set) else choices
        for choices in (include, exclude)
    )
    swap = Swap(alpha, include, exclude, strict)
    _ = swap.selection  # complain now
    return swap


def _places(module: nn.Module, args: Any, kwargs: Any) -> list[Place]:
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = {i: leaf for i, leaf in enumerate(leaves) if hasattr(leaf, "dtype")}

    def init(arrays: dict[int, Any]) -> Any:
        filled = [arrays.get(i, leaf) for i, leaf in enumerate(leaves)]
        args, kwargs = jax.tree.unflatten(structure, filled)
        return module.init(*args, **kwargs)

    record = Record()
    with intercepting(record=record):
        jax.eval_shape(init, arrays)
    return list(record.places.values())


def _check(module: Any) -> None:
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


@cache
def _with_qsd(base: Any) -> Any:
    """Return a subclass whose methods run with QSD; of the same name, which names variables."""

    # All methods of a module go through this one, also those called with apply(method=...).
    # Linen must not wrap it as if it were one of them.
    @nn.nowrap
    def _call_wrapped_method(self: Any, method: Any, args: Any, kwargs: Any) -> Any:
        run = base._call_wrapped_method
        if self.scope is None:
            return run(self, method, args, kwargs)
        with intercepting(self.qsd, len(self.path)):
            return run(self, method, args, kwargs)

    def __reduce__(self: Any) -> Any:  # noqa: N807
        return _made, (revert(self), self.qsd)

    members = {
        "__annotations__": {"qsd": tuple[Swap, ...]},
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__reduce__": nn.nowrap(__reduce__),
        "_before_qsd": base,
        "_call_wrapped_method": _call_wrapped_method,
        "qsd": (),
    }
    return type(base)(base.__name__, (base,), members)
