"""The interceptor that puts QSD in the place of dropout while Linen modules run.

Linen modules are descriptions that make their layers when they run, so it is decided then, in the
methods of the layers, what is swapped. There is one interceptor. A context variable tells it what
to do, so that contexts nest: the innermost conversion wins.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import jax
from flax import linen as nn
from flax import nnx

from quantal._prediction import Tally
from quantal._selection import Alpha, Pattern, Place, Selection
from quantal.jax._jit_key import jit_key
from quantal.jax.linen._attention import QSDDotProductAttention
from quantal.jax.linen._find_sites import Record, places_in_code, site_of
from quantal.jax.linen._layer import diluted
from quantal.sites import Site

__all__ = ["Swap", "intercepting"]


@dataclass(frozen=True)
class Swap:
    """The arguments of a conversion; hashable, as the fields of a module should be."""

    alpha: Alpha | None
    include: Pattern = None
    exclude: Pattern = None
    strict: bool = True

    @functools.cached_property
    def selection(self) -> Selection:
        """The choice that they make."""
        return Selection(self.alpha, self.include, self.exclude, self.strict)


@dataclass(frozen=True)
class _Orders:
    """What the interceptor is to do.

    Attributes
    ----------
    swaps
        The active conversions, the innermost first, each with the depth of its module.
    masks
        Which layers draw: as the model calls them, all QSD, or all of dropout.
    record
        Where to note the places; with it, nothing is drawn.
    tally
        What to count; it makes no difference to what is computed.
    """

    swaps: tuple[tuple[Swap, int], ...] = ()
    masks: Literal["as called", "QSD", "all"] = "as called"
    record: Record | None = None
    tally: Tally = field(default_factory=Tally, compare=False)

    def swap_for(self, site: Site, module: nn.Module, *inside: str) -> Swap | None:
        """Return the conversion that takes a site, at or inside of a module."""
        if site.alpha is None:
            for swap, depth in self.swaps:
                if swap.selection("/".join((*module.path[depth:], *inside)), module):
                    return swap
        return None

    def forces(self, site: Site) -> bool:
        return self.masks == "all" or (self.masks == "QSD" and site.alpha is not None)


_orders: ContextVar[_Orders | None] = ContextVar("_orders", default=None)


@contextmanager
def intercepting(swaps: tuple[Swap, ...] = (), depth: int = 0, **changes: Any) -> Iterator[None]:
    """Swap, force or record in this block, on top of what the blocks around it do."""
    outer = _orders.get()
    before = outer or _Orders()
    added = tuple((swap, depth) for swap in swaps if (swap, depth) not in before.swaps)
    orders = replace(before, swaps=added + before.swaps, **changes)
    token = _orders.set(orders)
    try:
        with jit_key(orders), nn.intercept_methods(_intercept) if outer is None else nullcontext():
            yield
    finally:
        _orders.reset(token)


def _intercept(
    method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Any
) -> Any:
    orders, module = _orders.get() or _Orders(), context.module
    orders.tally.runs += 1
    for place in places_in_code(module):
        _unreached(orders, place)
    if context.method_name == "__call__" and isinstance(module, nnx.bridge.ToLinen):
        with _changed(module, {"nnx_class": _bridged(module, orders)}):
            return method(*args, **kwargs)
    site = site_of(module) if context.method_name == "__call__" else None
    if site is None:
        return method(*args, **kwargs)
    if site.unreached:
        _unreached(orders, Place(site, module))
    swap = None if site.unreached else orders.swap_for(site, module)
    alpha = None if swap is None else swap.selection.alpha_for(site.rate)
    if alpha is not None:
        site = replace(site, kind="QSD", alpha=alpha)
    changes: dict[str, Any] = {}
    if orders.record is not None:
        orders.record.add(Place(site, module))
    if orders.record is not None and orders.record.quiet:
        changes["deterministic"] = True
    elif orders.forces(site):
        changes["deterministic"] = False
        orders.tally.draws += 1
    if changes:
        args, kwargs = _undecided(context.orig_method, args, kwargs)
    if alpha is not None and isinstance(module, nn.MultiHeadDotProductAttention):
        changes["attention_fn"] = QSDDotProductAttention(alpha)
    elif alpha is not None:
        method = _qsd(module, alpha)
    with _changed(module, changes):
        return method(*args, **kwargs)


def _bridged(module: Any, orders: _Orders) -> Callable[..., Any]:
    """Return a function that makes the NNX module inside a Linen one, and puts QSD into it."""
    from quantal.jax.nnx._find_sites import find_sites
    from quantal.jax.nnx._swap import swap

    make = module.nnx_class

    @functools.wraps(make, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        built = make(*args, **kwargs)
        for place in list(find_sites(built)):
            site = replace(place.site, name="/".join(filter(None, (*module.path, place.site.name))))
            if site.unreached:
                _unreached(orders, Place(site, module, place.how))
                continue
            order = orders.swap_for(site, module, place.site.name)
            if order is not None:
                alpha = order.selection.alpha_for(site.rate)
                swap(place.module, alpha)
                site = replace(site, kind="QSD", alpha=alpha)
            if orders.record is not None:
                orders.record.add(Place(site, module))
            if orders.record is not None and orders.record.quiet:
                place.module.deterministic = True
            elif orders.forces(site):
                place.module.deterministic = False
                orders.tally.draws += 1
        return built

    return build


def _unreached(orders: _Orders, place: Place) -> None:
    if orders.record is not None:
        orders.record.add(place)
    elif (swap := orders.swap_for(place.site, place.module)) is not None:
        swap.selection.settle([], [place.site])


def _qsd(module: nn.Module, alpha: float) -> Callable[..., jax.Array]:
    return lambda *args, **kwargs: diluted(module, *args, alpha=alpha, **kwargs)


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
