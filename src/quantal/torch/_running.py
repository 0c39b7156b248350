"""Run the code of modules with QSD: one mode serves a whole model, however deep it is."""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch
from torch import nn

from quantal.torch._classes import is_torchs_own
from quantal.torch._reroute import ANY, Rerouting
from quantal.torch._unlisted import alpha_of_unlisted, notice_changes, notice_mask

__all__ = ["rerouted_methods"]


class _Thread(threading.local):
    mode: Rerouting | None

    def __init__(self) -> None:
        # In every thread, from the start: a compiled graph is guarded by what is here.
        self.mode = None


_HERE = _Thread()


def rerouted_methods(cls: type[nn.Module]) -> dict[str, Callable[..., Any]]:
    """Return the methods through which the code of a class may be entered, each with QSD.

    Those are the call itself, which includes hooks and a ``forward`` that is set on the instance,
    and all methods that are not torch's.
    """
    own = {name: _with_qsd(_method(cls, name)) for name in ("__call__", *_own_methods(cls))}
    if cls.__call__ is nn.Module.__call__:
        own["__call__"] = _rerouted(_call)
    return own


def _call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
    # Looked up each time: torch.fx puts its own into that place while it traces.
    return nn.Module.__call__(self, *args, **kwargs)


def _own_methods(cls: type[nn.Module]) -> Iterator[str]:
    yield "forward"
    for name, _ in inspect.getmembers_static(cls, inspect.isfunction):
        inherited = any(name in vars(parent) for parent in cls.__mro__ if is_torchs_own(parent))
        if not (inherited or name.startswith("__")):
            yield name


def _method(cls: type[nn.Module], name: str) -> Callable[..., Any]:
    """Return what a class has by a name, as a function whose first argument is the module."""
    found: Any = inspect.getattr_static(cls, name)
    if inspect.isfunction(found):
        return found

    # Static, of the class, partial, or any other thing that can be called.
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        binds = hasattr(found, "__get__")
        return (found.__get__(self, type(self)) if binds else found)(*args, **kwargs)

    call.__name__ = name
    return call


def _with_qsd(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose code runs with QSD: at once or, of a generator, in steps."""
    if inspect.isasyncgenfunction(method):
        return method
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await _awaited(self, method(self, *args, **kwargs))

        return run
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def run_in_steps(self: Any, *args: Any, **kwargs: Any) -> Any:
            return (yield from _in_steps(self, method(self, *args, **kwargs)))

        return run_in_steps
    return _rerouted(method)


def _rerouted(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        own = self.__dict__.get("_qsd_alphas")
        if own is None or not self.training:
            return method(self, *args, **kwargs)
        mode = _HERE.mode
        if mode is None:
            return _begin(method, self, args, kwargs)
        if mode.module is self:
            return method(self, *args, **kwargs)
        outside = mode.alphas, mode.module
        mode.alphas = own if ANY in own else {**mode.alphas, **own}
        mode.module = self
        try:
            return method(self, *args, **kwargs)
        finally:
            mode.alphas, mode.module = outside

    # Each has a code object of its own: for one, torch's compiler keeps only a few graphs.
    made: Any = run
    made.__code__ = made.__code__.replace(co_name=method.__name__)
    return run


def _begin(method: Callable[..., Any], module: Any, args: Any, kwargs: Any) -> Any:
    if not torch.compiler.is_compiling():
        notice_changes(module)
    mode = _HERE.mode = Rerouting(module._qsd_alphas, module, alpha_of_unlisted, notice_mask)
    try:
        with mode:
            return method(module, *args, **kwargs)
    finally:
        _HERE.mode = None


@_rerouted
def _resume(module: Any, step: Callable[[Any], Any], given: Any) -> Any:
    return step(given)


def _in_steps(module: Any, steps: Any) -> Generator[Any, Any, Any]:
    """Run a generator or a coroutine of a module; between its steps, the mode is left."""
    step, given = steps.send, None
    while True:
        try:
            found = _resume(module, step, given)
        except StopIteration as end:
            return end.value
        try:
            step, given = steps.send, (yield found)
        except GeneratorExit:
            steps.close()
            raise
        except BaseException as error:  # which the generator may catch
            step, given = steps.throw, error


_awaited = types.coroutine(_in_steps)
