"""The interceptor that puts QSD in the place of dropout while Linen modules run.

Linen modules are descriptions, and their layers come into being when they run: so what is swapped
is decided then, in the methods of the layers. One interceptor does it all. What it is to do is in a
context variable, so that contexts nest: the innermost conversion wins.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import jax
from flax import linen as nn

from quantal._selection import Alpha, Pattern, Selection
from quantal.jax._find_sites import Place, alpha_for, readable
from quantal.jax._source_scan import literal_dropout
from quantal.jax.linen._attention import QSDAttention
from quantal.jax.linen._layer import QSD, diluted
from quantal.sites import Site

__all__ = ["Record", "Swap", "intercepting"]

_FUNCTIONS = (nn.dot_product_attention, nn.dot_product_attention_weights)


@dataclass(frozen=True)
class Swap:
    """The arguments of a conversion; hashable, as the fields of a module should be."""

    alpha: Alpha
    include: Pattern = None
    exclude: Pattern = None
    strict: bool = True

    @cached_property
    def selection(self) -> Selection:
        """The choice that they make."""
        return Selection(self.alpha, self.include, self.exclude, self.strict)


class Record:
    """The places that a run comes by; with it, nothing is drawn."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, str], Place] = {}

    def add(self, site: Site, module: nn.Module) -> None:
        """Keep a place; shared modules come by more than once."""
        self.places.setdefault((site.name, site.unreached), Place(site, module))


@dataclass(frozen=True)
class _Orders:
    """What the interceptor is to do."""

    swaps: tuple[tuple[Swap, int], ...] = ()  # each with the depth of the module it is for
    masks: Literal["called for", "QSD", "all"] = "called for"
    record: Record | None = None

    def swap_for(self, site: Site, module: nn.Module) -> Swap | None:
        if site.alpha is None:
            for swap, depth in self.swaps:
                if swap.selection("/".join(module.path[depth:]), module):
                    return swap
        return None


_orders: ContextVar[_Orders | None] = ContextVar("_orders", default=None)

# Compiled functions are kept by what is in this context; older versions of JAX have no such thing.
_jit_key = jax.make_user_context(None) if hasattr(jax, "make_user_context") else nullcontext


@contextmanager
def intercepting(swaps: tuple[Swap, ...] = (), depth: int = 0, **changes: Any) -> Iterator[None]:
    """Swap, force or record, in addition to what is asked for around this block."""
    outer = _orders.get()
    before = outer or _Orders()
    added = tuple((swap, depth) for swap in swaps if (swap, depth) not in before.swaps)
    orders = replace(before, swaps=added + before.swaps, **changes)
    token = _orders.set(orders)
    try:
        with _jit_key(orders), nn.intercept_methods(_intercept) if outer is None else nullcontext():
            yield
    finally:
        _orders.reset(token)


def _intercept(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any
) -> Any:
    orders, module = _orders.get() or _Orders(), context.module
    name = "/".join(module.path)
    for literal in literal_dropout(name, type(module), (), _FUNCTIONS):
        _unreached(orders, literal, module)
    site = _site(name, module) if context.method_name == "__call__" else None
    if site is None:
        return method(*args, **kwargs)
    if site.unreached:
        _unreached(orders, site, module)
    swap = None if site.unreached else orders.swap_for(site, module)
    alpha = None if swap is None else alpha_for(swap.selection, _rate(module))
    if alpha is not None:
        site = replace(site, kind="QSD", alpha=alpha)
    changes: dict[str, Any] = {}
    if orders.record is not None:
        orders.record.add(site, module)
        changes["deterministic"] = True
    elif orders.masks == "all" or (orders.masks == "QSD" and site.alpha is not None):
        changes["deterministic"] = False
    if changes:
        args, kwargs = _undecided(context.orig_method, args, kwargs)
    if alpha is not None and isinstance(module, nn.MultiHeadDotProductAttention):
        changes["attention_fn"] = QSDAttention(alpha)
    elif alpha is not None:
        method = _qsd(module, alpha)
    with _changed(module, changes):
        return method(*args, **kwargs)


def _unreached(orders: _Orders, site: Site, module: nn.Module) -> None:
    if orders.record is not None:
        orders.record.add(site, module)
    elif (swap := orders.swap_for(site, module)) is not None:
        swap.selection.settle([], [site])


def _qsd(module: nn.Module, alpha: float) -> Callable[..., jax.Array]:
    return lambda *args, **kwargs: diluted(module, *args, alpha=alpha, **kwargs)


def _site(name: str, module: nn.Module) -> Site | None:
    kind, reason = type(module).__name__, ""
    if isinstance(module, QSD):
        rate, alpha = readable(module.rate), readable(module.alpha)
        return Site(name, "QSD", rate, alpha, vary=module.vary, unit_mean=module.unit_mean)
    if isinstance(module, nn.Dropout):
        # What nn.vmap and the like have lifted comes by here inside of them, as it was before.
        if type(module).__call__ is not nn.Dropout.__call__:
            reason = f"{kind} is a class of its own"
    elif isinstance(module, nn.MultiHeadDotProductAttention) and module.dropout_rate > 0:
        if isinstance(module.attention_fn, QSDAttention):  # SelfAttention calls its parent
            return Site(name, "QSD", readable(module.dropout_rate), module.attention_fn.alpha)
        if module.attention_fn is not nn.dot_product_attention:
            reason = "its attention_fn is not nn.dot_product_attention"
    else:
        return None
    return Site(name, kind, readable(_rate(module)), unreached=reason)


def _rate(module: Any) -> Any:
    if isinstance(module, nn.MultiHeadDotProductAttention):
        return module.dropout_rate
    return module.rate


def _undecided(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments without ``deterministic``, which may stand in only one place."""
    names = list(inspect.signature(method).parameters)
    if "deterministic" in kwargs:
        kwargs = kwargs | {"deterministic": None}
    elif "deterministic" in names[: len(args)]:
        place = names.index("deterministic")
        args = (*args[:place], None, *args[place + 1 :])
    return args, kwargs


@contextmanager
def _changed(module: nn.Module, changes: dict[str, Any]) -> Iterator[None]:
    """Change fields of a module, which is frozen, for the length of a call."""
    before = {name: getattr(module, name) for name in changes}
    try:
        for name, value in changes.items():
            object.__setattr__(module, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(module, name, value)
