"""The ``example`` of `convert` and `sites`: a training pass after which all values are restored."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from quantal.torch._layers import DilutionLayer
from quantal.torch._private_api import compiler_is_loaded

__all__ = ["build", "run_unnoticed"]


def run_unnoticed(
    model: nn.Module, example: Any, watched: Callable[[Callable[[], Any]], None]
) -> None:
    """Run a training pass; afterwards all values and random states are as they were.

    Parameters
    ----------
    model : nn.Module
        It is put into training mode, if it is not.
    example
        As in `convert`.
    watched : function
        Called with a function that runs the pass; it may do so more than once.
    """
    if callable(example) and not isinstance(example, Tensor):
        takes_model = len(inspect.signature(example).parameters) > 0
        run, steps = functools.partial(example, *[model] * takes_model), True
    else:
        args, kwargs = _arguments(example)
        run, steps = functools.partial(model, *args, **kwargs), False
    if not model.training:
        model.train()
    with _same_values(model, steps), _same_random_states(model), _eager(), torch.enable_grad():
        try:
            watched(run)
        finally:
            _reshard(model)


def _reshard(model: nn.Module) -> None:
    """Let modules of FSDP2 have their shards for parameters, as before the pass."""
    if "torch.distributed.fsdp" in sys.modules and torch.distributed.is_available():
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()


def build(model: nn.Module, example: Any) -> None:
    """Give lazy modules their shapes; they keep them, as after any other call."""
    lazy = any(is_lazy(p) for p in (*model.parameters(), *model.buffers()))
    if lazy and not callable(example):
        args, kwargs = _arguments(example)
        with torch.no_grad(), _same_random_states(model):
            model(*args, **kwargs)


def _arguments(example: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    if isinstance(example, Mapping):
        return (), example
    return (example if isinstance(example, tuple) else (example,)), {}


@contextmanager
def _same_values(model: nn.Module, steps: bool) -> Iterator[None]:
    """Have parameters, buffers, gradients and optimizers as they were afterwards.

    ``steps`` says that parameters may change, too.
    """
    parameters = list(model.parameters())
    kept = [*model.buffers(), *(parameters if steps else ())]
    values = [(tensor, tensor.detach().clone()) for tensor in kept]
    gradients = [(p, p.grad) for p in parameters]
    for parameter in parameters:
        parameter.grad = None
    optimizers: dict[Optimizer, dict[Any, Any]] = {}

    def before_a_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer not in optimizers:
            optimizers[optimizer] = {
                p: {k: v.clone() if isinstance(v, Tensor) else v for k, v in held.items()}
                for p, held in optimizer.state.items()
            }

    hook = register_optimizer_step_pre_hook(before_a_step)
    try:
        yield
    finally:
        hook.remove()
        with torch.no_grad():
            for tensor, value in values:
                if tensor.shape != value.shape:  # as the statistics of an observer
                    tensor.data = value
                elif not torch.equal(tensor, value):
                    tensor.copy_(value)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for optimizer, state in optimizers.items():
            optimizer.state.clear()
            optimizer.state.update(state)


@contextmanager
def _same_random_states(model: nn.Module) -> Iterator[None]:
    """Have torch's streams, Python's, NumPy's and the model's own as they were afterwards."""
    attributes = (value for module in model.modules() for value in vars(module).values())
    own = {value for value in attributes if isinstance(value, torch.Generator)}
    states = [(generator, generator.get_state()) for generator in own]
    counts = [(m, m.calls) for m in model.modules() if isinstance(m, DilutionLayer)]
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - that of others
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=()))
        for kind in {p.device.type for p in model.parameters()} - {"cpu", "meta"}:
            stack.enter_context(torch.random.fork_rng(device_type=kind))
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
            for generator, state in states:
                generator.set_state(state)
            for layer, count in counts:
                layer.calls = count


def _eager() -> Any:
    """Return a context in which compiled code runs as it is written, so that it can be watched."""
    if not (compiler_is_loaded() and hasattr(torch.compiler, "set_stance")):
        return nullcontext()
    return torch.compiler.set_stance("force_eager")
