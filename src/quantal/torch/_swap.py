"""How a module becomes one that draws QSD, and back: the object stays, its class changes.

So hooks, weights, mode, and every reference to the module stay as they are.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit
from torch import nn

from quantal.dilution import Dilution
from quantal.torch._layers import QSD, DilutionLayer
from quantal.torch._reroute import ROUTES, Rerouting, Route
from quantal.torch._spatial import QSD1d, QSD2d, QSD3d

__all__ = ["Change", "Rerouted", "layer_change", "reroute", "restore", "to_qsd"]


class Change(NamedTuple):
    """What has to be done where a module drops units.

    Attributes
    ----------
    route : Route
        The function of torch that draws there, and what takes its place.
    layer : type or None
        The QSD layer that the module becomes. If it is None, the module keeps its class, and calls
        of the function in its code are rerouted.
    """

    route: Route
    layer: type[DilutionLayer] | None = None


_LAYERS: dict[type[nn.Module], Change] = {
    nn.Dropout: Change(ROUTES[F.dropout], QSD),
    nn.Dropout1d: Change(ROUTES[F.dropout1d], QSD1d),
    nn.Dropout2d: Change(ROUTES[F.dropout2d], QSD2d),
    nn.Dropout3d: Change(ROUTES[F.dropout3d], QSD3d),
}


def layer_change(module: nn.Module) -> Change | None:
    """Return how a layer of dropout becomes QSD; None if it does not work as torch's own do."""
    for native, change in _LAYERS.items():
        if isinstance(module, native) and type(module).forward is native.forward:
            return change
    return None


def to_qsd(
    module: nn.Module, layer: type[DilutionLayer], law: Dilution, device: torch.device
) -> None:
    """Turn a layer of dropout into one of QSD, with its tables on a device."""
    made = layer(law.rate, law.alpha).to(device)
    state = module.__dict__
    del state["p"]  # a property from now on
    added = {name: value for name, value in made.__dict__.items() if name not in state}
    state |= added | {"_native": type(module), "_added": ("_native", "_added", *added)}
    module.__class__ = layer


class Rerouted(nn.Module):
    """What a module gains whose own code drops units: QSD in training, and nothing else."""

    _native: ClassVar[type[nn.Module]]
    _qsd_alphas: dict[str, float]  # by the name of the route of each function in its code

    def extra_repr(self) -> str:
        """Return that of the module, and alpha."""
        alphas = (f"alpha={alpha}" for alpha in dict.fromkeys(self._qsd_alphas.values()))
        return ", ".join(filter(None, [super().extra_repr(), *alphas]))

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # The class cannot be found by its name, but made again.
        return _empty, (self._native,), self.__getstate__()


def reroute(module: Any, route: Route, alpha: float) -> None:
    """Turn a module into one whose own code draws QSD where it calls a function of torch."""
    if not isinstance(module, Rerouted):
        native: Any = type(module)
        module.__class__ = _rerouted(native)
        module._qsd_alphas = {}
    module._qsd_alphas[route.name] = alpha


def restore(module: Any) -> None:
    """Undo `to_qsd` and `reroute`; leave any other module alone."""
    own: Any = module  # to which type checkers give the class that it has now
    if isinstance(module, Rerouted):
        own.__class__ = own._native
        del own._qsd_alphas
    elif isinstance(module, DilutionLayer) and module._native is not None:
        rate, native = own.p, own._native
        for name in own._added:
            del own.__dict__[name]
        own.__class__ = native
        own.p = rate


@functools.cache
def _rerouted(cls: type[nn.Module]) -> type[nn.Module]:
    """Return the class of a module with QSD in its own code: it goes by the same name."""

    @functools.wraps(cls.forward)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return cls.forward(self, *args, **kwargs)
        with Rerouting(self._qsd_alphas):
            return cls.forward(self, *args, **kwargs)

    same = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(cls.__name__, (Rerouted, cls), {"forward": forward, "_native": cls, **same})


def _empty(cls: Any) -> nn.Module:
    made: Any = _rerouted(cls)
    return made.__new__(made)
