"""Replace the class of a module, also beneath classes that torch's tools have made from it.

``torch.nn.utils.parametrize`` and FSDP2's ``fully_shard`` give a module a class of its own, made
from the one that it had. What they have put on top stays on top.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn

__all__ = ["become", "class_beneath", "is_torchs_own", "laid_out_as_modules", "put_class", "rebind"]


def is_torchs_own(code: Any) -> bool:
    """Return whether the code of a class or a function is torch's."""
    ours = str(code.__module__).partition(".")[0] == "torch"
    return ours and code.__name__ != "GraphModuleImpl"


def become(module: nn.Module, cls: type) -> None:
    """Give a module another class, whatever a ``__setattr__`` of its own allows."""
    object.__setattr__(module, "__class__", cls)


def laid_out_as_modules(cls: Any) -> bool:
    """Return whether Python lets what is of a class become one of another whose first base is ours.

    Not where the first base has no ``__dict__``, such as ``abc.ABC`` and ``typing.Generic``.
    """
    while cls.__base__.__dictoffset__:
        cls = cls.__base__
    return cls.__base__ is object


def class_beneath(module: nn.Module) -> type[Any]:
    """Return the class of a module without what torch's tools have put on top of it."""
    cls: type[Any] = type(module)
    while _made_by_a_tool(cls):
        cls = cls.__bases__[-1]
    return cls


def put_class(module: nn.Module, old: type, new: type) -> None:
    """Put a class into the place of another one, from which that of a module is made."""
    become(module, _with_base(type(module), old, new))


def _with_base(cls: Any, old: type, new: type) -> Any:
    if cls is old:
        return new
    if old not in cls.__mro__:
        return cls
    bases = tuple(_with_base(base, old, new) for base in cls.__bases__)
    own = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    return type(cls)(cls.__name__, bases, own)


def _made_by_a_tool(cls: type) -> bool:
    """Return whether torch has made a class while it ran: it is not where its name points to."""
    if not is_torchs_own(cls) or "<locals>" in cls.__qualname__:
        return False
    return getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls


def rebind(module: nn.Module, old: Callable[..., Any], new: Callable[..., Any]) -> None:
    """Replace a method by another in the attributes of a module that hold it.

    Other libraries set them: ``_old_forward`` of accelerate, or a decorated ``forward``.
    """

    def replaced(value: Any) -> Any:
        ours = isinstance(value, MethodType) and value.__self__ is module and value.__func__ is old
        return MethodType(new, module) if ours else value

    for name, value in list(vars(module).items()):
        vars(module)[name] = replaced(value)
        # The function of a method, or of a functools.partial.
        function = getattr(value, "__func__", getattr(value, "func", value))
        for cell in (function.__closure__ or ()) if isinstance(function, FunctionType) else ():
            _replace_in(cell, replaced)


def _replace_in(cell: CellType, replaced: Callable[[Any], Any]) -> None:
    try:
        cell.cell_contents = replaced(cell.cell_contents)
    except ValueError:  # not filled yet
        return
