"""How a module becomes one that draws QSD, and back: the object stays, its class changes.

So hooks, weights, mode, and every reference to the module stay as they are.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import nn

from quantal._errors import wrong_value
from quantal.dilution import Dilution
from quantal.torch._classes import (
    become,
    class_beneath,
    laid_out_as_modules,
    put_class,
    rebind,
)
from quantal.torch._layers import QSD, DilutionLayer
from quantal.torch._reroute import ANY, ROUTES, Route
from quantal.torch._running import rerouted_methods
from quantal.torch._spatial import QSD1d, QSD2d, QSD3d
from quantal.torch._unlisted import Inventory

__all__ = ["Change", "Rerouted", "layer_change", "reroute", "reroute_all", "restore", "to_qsd"]


class Change(NamedTuple):
    """What has to be done where a module drops units.

    Attributes
    ----------
    route : Route
        The function of torch that draws there, and what takes its place.
    layer : type or None
        The QSD layer that the module becomes. If it is None, the module keeps its class, and calls
        of the function in its code are rerouted.
    rate : float or None
        The rate of a call that was seen in a run only; None if it was found otherwise.
    """

    route: Route
    layer: type[DilutionLayer] | None = None
    rate: float | None = None


_LAYERS: dict[type[nn.Module], Change] = {
    nn.Dropout: Change(ROUTES[F.dropout], QSD),
    nn.Dropout1d: Change(ROUTES[F.dropout1d], QSD1d),
    nn.Dropout2d: Change(ROUTES[F.dropout2d], QSD2d),
    nn.Dropout3d: Change(ROUTES[F.dropout3d], QSD3d),
}


def layer_change(module: nn.Module) -> Change | None:
    """Return how a layer of dropout becomes QSD; None if it does not work as torch's own do."""
    for native, change in _LAYERS.items():
        if isinstance(module, native) and inspect.unwrap(type(module).forward) is native.forward:
            # Where attributes of its own hide p or forward, the layer keeps its class.
            plain = "p" in vars(module) and "forward" not in vars(module)
            can_be = plain and laid_out_as_modules(class_beneath(module))
            return change if can_be else change._replace(layer=None)
    return None


def to_qsd(
    module: nn.Module, layer: type[DilutionLayer], law: Dilution, device: torch.device
) -> None:
    """Turn a layer of dropout into one of QSD, with its tables on a device."""
    made = layer(law.rate, law.alpha).to(device)
    state = module.__dict__
    native: Any = class_beneath(module)
    kind: Any = layer
    put_class(module, native, kind if native in _LAYERS else _diluting(native, kind))
    del state["p"]  # a property from now on
    added = {name: value for name, value in made.__dict__.items() if name not in state}
    state |= added | {"_native": native, "_added": ("_native", "_added", *added)}


class Rerouted(nn.Module):
    """A mixin for modules whose own code drops units: in training, they draw QSD instead."""

    _qsd_native: ClassVar[type[nn.Module]]
    _qsd_alphas: dict[str, float]  # by the name of the route of each function in its code
    _qsd_found: dict[str, tuple[str, float]]  # of those seen in a run only: as written, and rate
    _qsd_inventory: Inventory

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Not be noticed by the class of the module, which may list or name its subclasses."""

    def extra_repr(self) -> str:
        """Return that of the module, and alpha."""
        alphas = dict.fromkeys(a for name, a in self._qsd_alphas.items() if name != ANY)
        shown = (f"alpha={alpha}" for alpha in alphas)
        return ", ".join(filter(None, [self._qsd_native.extra_repr(self), *shown]))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        native: Any = self._qsd_native
        if native.__reduce__ is object.__reduce__:
            # pickle cannot find the class by its name, but can have it made again.
            return _empty, (_rerouted, native), self.__getstate__()
        with _as_native(self):  # whose class may have its own way, as a GraphModule does
            make, args = self.__reduce_ex__(protocol)[:2]
        return _rerouted_again, (make, args, self._qsd_kept())

    def __prepare_scriptable__(self) -> Any:
        """Refuse torch.jit.script, which reads source: there would be no QSD in it."""
        expected = "one without QSD in its own code for torch.jit.script: call revert first"
        raise wrong_value("model", expected, type(self).__name__)

    def _qsd_kept(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in _KEPT}


def reroute(module: Any, change: Change, alpha: float) -> None:
    """Turn a module into one whose own code draws QSD where it calls a function of torch."""
    name = change.route.name
    _make_rerouted(module)
    module._qsd_alphas[name] = alpha
    if change.rate is not None:
        module._qsd_found[name] = (change.route.written, change.rate)


def reroute_all(module: Any, alpha: float, complete: bool = False) -> None:
    """Turn a module into one whose code draws QSD wherever it is found to drop units.

    If alpha is NaN, it goes on to drop them, with a warning. ``complete`` as in `Inventory`.
    """
    _make_rerouted(module)
    module._qsd_alphas[ANY] = alpha
    module._qsd_inventory.complete = complete


_KEPT = ("_qsd_alphas", "_qsd_found", "_qsd_inventory")


def _make_rerouted(module: Any) -> None:
    if not isinstance(module, Rerouted):
        native: Any = class_beneath(module)
        put_class(module, native, _rerouted(native))
        # Not by setattr, which a compiled module hands on to the one inside it.
        vars(module).update(_qsd_alphas={}, _qsd_found={}, _qsd_inventory=Inventory(module))


def restore(module: Any) -> None:
    """Undo `to_qsd`, `reroute` and `reroute_all`; leave any other module alone."""
    own: Any = module  # to which type checkers give the class that it has now
    if isinstance(module, Rerouted):
        made = _converted_class(own)
        put_class(own, made, made._qsd_native)
        for name in _KEPT:
            del own.__dict__[name]
    if isinstance(module, DilutionLayer) and module._native is not None:
        rate, native = own.p, own._native
        layers = [change.layer for change in _LAYERS.values()]
        classes: Any = type(own).__mro__
        made = next(cls for cls in classes if "_diluted" in vars(cls) or cls in layers)
        for name in own._added:
            del own.__dict__[name]
        put_class(own, made, native)
        rebind(own, made.forward, native.forward)
        vars(own)["p"] = rate


@functools.cache
def _rerouted(cls: type[nn.Module]) -> type[nn.Module]:
    """Return the class of a module with QSD in its own code: it goes by the same name."""
    own = {**rerouted_methods(cls), "_qsd_native": cls, **_same_name(cls)}
    if hasattr(cls, "__deepcopy__"):
        own["__deepcopy__"] = _deepcopy
    if issubclass(cls, torch.fx.GraphModule):
        own["recompile"] = _recompile
    if laid_out_as_modules(cls):
        return type(cls.__name__, (Rerouted, cls), own)
    own |= {name: vars(Rerouted)[name] for name in ("__reduce_ex__", "extra_repr")}
    return type(cls.__name__, (cls, Rerouted), own)


def _deepcopy(self: Any, memo: Any) -> Any:
    """Copy as the class of the module does it."""
    with _as_native(self):
        copied = copy.deepcopy(self, memo)
    return _rerouted_again(lambda: copied, (), copy.deepcopy(self._qsd_kept(), memo))


def _recompile(self: Any) -> Any:
    """Write the code of a graph anew, which puts it into the class of the module."""
    with _as_native(self):
        code = self.recompile()
    made = _converted_class(self)
    made.forward = rerouted_methods(made._qsd_native)["forward"]
    return code


@contextmanager
def _as_native(module: Any) -> Iterator[None]:
    """Within it, a module has the class that it had."""
    cls = type(module)
    put_class(module, _converted_class(module), module._qsd_native)
    try:
        yield
    finally:
        become(module, cls)


def _converted_class(module: Any) -> Any:
    """Return the class that `_rerouted` has made, also beneath one that torch's tools have made."""
    return next(cls for cls in type(module).__mro__ if "_qsd_native" in vars(cls))


def _rerouted_again(make: Callable[..., Any], args: Any, kept: dict[str, Any]) -> Any:
    module = make(*args)
    _make_rerouted(module)
    vars(module).update(kept)
    return module


@functools.cache
def _diluting(cls: Any, layer: Any) -> type[nn.Module]:
    """Return the class of a QSD layer that keeps the methods of a subclass of dropout."""

    def reduce(self: Any, protocol: Any) -> tuple[Any, ...]:
        return _empty, (_diluting, cls, layer), self.__getstate__()

    own = {"__reduce_ex__": reduce, "_diluted": cls, **_same_name(cls)}
    return type(cls.__name__, (layer, cls), own)


def _same_name(cls: type) -> dict[str, Any]:
    return {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}


def _empty(make: Callable[..., Any], *classes: Any) -> nn.Module:
    made: Any = make(*classes)
    return made.__new__(made)
