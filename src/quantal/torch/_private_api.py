"""Every private name of torch and Hugging Face that is used here, and what happens without it.

All were seen in torch 2.13 and transformers 5. A name that is gone costs speed or a warning, never
the import: what stands in for it is said beside it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._python_dispatch
from torch import Tensor, nn

__all__ = [
    "USUAL_ATTENTION",
    "Code",
    "attention_implementation",
    "configuration",
    "count_modules",
    "flatten",
    "function_modes_active",
    "has_hooks",
    "has_values",
    "identity_of_memory",
    "in_backward_pass",
    "is_checkpoint",
    "is_dropout",
    "is_fake",
    "kind_of_code",
    "modes_active",
    "ragged_axis",
    "rates_of_dropout",
    "runs_as_it_is",
    "saving_is_hooked",
    "without_function_modes",
    "without_modes",
]


class Code(enum.Enum):
    """The kind of code in which a call stands; asked once a call, and passed down."""

    EAGER = "eager"
    """Nobody looks on, so what is fastest may be used."""

    TRANSFORMED = "transformed"
    """Eager, but a transform, a dispatch mode or a subclass of Tensor sees every operation."""

    RECORDED = "recorded"
    """In torch.jit.trace or torch.export: the operations must serve other shapes and formats."""

    COMPILED = "compiled"
    """In a graph of torch.compile."""


# Without it, all eager code counts as transformed: slower, and four bytes a unit are kept, not two.
_transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)
# Likewise: the batches of torch.autograd.grad(is_grads_batched=True), which are no transform.
_is_old_batch = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda x: True)
# Likewise; and `dilute` then makes the tensors of a table anew in every call.
_modes_on_the_stack = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1)
# Without it, a checkpoint that recomputes a layer with its own generator is not refused.
_current_graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)

# Without it, the kernels for GPUs are tried within the modes that are active, which count them.
_without_modes: Any = getattr(
    torch.utils._python_dispatch, "_disable_current_modes", contextlib.nullcontext
)
# Without it, those kernels read zeros that torch has not written down, as of unused tangents.
_is_zero = getattr(Tensor, "_is_zerotensor", lambda x: False)

# Without either, make_fx(pre_dispatch=True) cannot record a draw.
_key_is_included = getattr(torch._C, "_dispatch_tls_is_dispatch_key_included", lambda key: False)
_PRE_DISPATCH = getattr(torch._C.DispatchKey, "PreDispatch", None)

# Without either, a layer of a converted model runs in its mode: slower, and nothing else.
_function_modes_active = getattr(torch._C, "_is_torch_function_mode_enabled", lambda: False)
_without_function_modes: Any = getattr(torch._C, "DisableTorchFunction", contextlib.nullcontext)

# Without it, `predict_mc` averages outputs that are one tensor, and no structures of several.
_pytree: Any = getattr(torch.utils, "_pytree", None)
# Without it, dropout of other people's classes is known by torch's four layers only.
_AnyDropout = getattr(
    nn.modules.dropout, "_DropoutNd", (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
)

_saving_hooks: Callable[[], Any] = functools.partial(
    getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: ()), False
)

# Without it, torch's own function: it asks more, and is documented, but not among the exports.
_is_tracing: Callable[[], bool] = getattr(torch._C, "_is_tracing", vars(torch.jit)["is_tracing"])

_PLAIN = (Tensor, nn.Parameter)


def kind_of_code(x: Tensor) -> Code:
    """Return in which kind of code a tensor is worked on."""
    if torch.compiler.is_compiling():
        return Code.RECORDED if torch.compiler.is_exporting() else Code.COMPILED
    if _is_tracing():
        return Code.RECORDED
    if not is_plain(x) or _transforms_active() or _modes_on_the_stack() or _is_old_batch(x):
        return Code.TRANSFORMED
    # What records before torch dispatches comes with such a mode, which is quicker to ask for.
    if _function_modes_active() and _key_is_included(_PRE_DISPATCH):
        return Code.TRANSFORMED
    return Code.EAGER


def runs_as_it_is(x: Tensor) -> bool:
    """Return whether operators get this very tensor, or a fake one, and no transform's in between.

    A dispatch mode may look on.
    """
    if torch.compiler.is_compiling() or _is_tracing():
        return False
    if not (is_plain(x) or is_fake(x)) or _transforms_active() or _is_old_batch(x):
        return False
    # What is in memory is what a tensor says it is.
    return x.layout == torch.strided and not (x.is_neg() or _is_zero(x))


def is_plain(x: Tensor) -> bool:
    """Return whether a tensor is of torch's own class, and no nested one."""
    return type(x) in _PLAIN and not x.is_nested


def modes_active() -> bool:
    """Return whether new tensors belong to a dispatch mode, as FakeTensorMode, and die with it."""
    return bool(_modes_on_the_stack())


def ragged_axis(x: Tensor) -> int:
    """Return the axis of a jagged tensor along which sizes differ.

    Without the private attribute, the first after the batch: those that were transposed come out in
    another shape.
    """
    return getattr(x, "_ragged_idx", 1)


def mode_to_enter(x: Tensor) -> Any:
    """Return the mode of a fake tensor that is used outside of it; None for all others.

    Without the private attribute, such a tensor is refused by torch when it meets the tables.
    """
    return None if modes_active() else getattr(x, "fake_mode", None)


def is_fake(x: Tensor) -> bool:
    """Return whether a tensor has a device but no values.

    Without the private attribute, fake tensors on GPUs take separate operations.
    """
    return hasattr(x, "fake_mode")


def has_values(x: Tensor) -> bool:
    """Return whether the values of a tensor can be read, as those of a meta tensor cannot."""
    return not (x.is_meta or is_fake(x) or x.is_nested or x.layout != torch.strided)


def identity_of_memory(x: Tensor) -> int:
    """Return what is the same for tensors that are views of one another.

    Without the private attribute, and where tensors have no memory of one piece, it is their own.
    """
    try:
        return getattr(x.untyped_storage(), "_cdata", id(x))
    except (NotImplementedError, RuntimeError):
        return id(x)


def without_modes() -> contextlib.AbstractContextManager[None]:
    """Return a context in which operators run as if no dispatch mode were active."""
    return _without_modes()


def function_modes_active() -> bool:
    """Return whether modes see every call of a function of torch."""
    return bool(_function_modes_active())


def without_function_modes() -> contextlib.AbstractContextManager[None]:
    """Return a context in which functions of torch run as if no such mode were active."""
    context: contextlib.AbstractContextManager[None] = _without_function_modes()
    return context


def rates_of_dropout(operator: Any, args: Any, kwargs: Any) -> list[float]:
    """Return the rates that an operator drops units with: by its name, or that of an argument.

    Without the private attribute, kernels that drop units inside themselves are not seen.
    """
    schema: Any = getattr(operator, "_schema", None)
    named = [argument.name for argument in schema.arguments] if schema else []
    given = dict(zip(named, args, strict=False)) | kwargs
    name = operator.overloadpacket.__name__
    if "backward" in name or not given.get("train", True):
        return []
    rates = [
        rate
        for argument, rate in given.items()
        if "dropout" in argument or ("dropout" in name and argument == "p")
    ]
    return [rate for rate in rates if isinstance(rate, float) and rate > 0]


def saving_is_hooked() -> bool:
    """Return whether what autograd saves is handed to somebody, as to a checkpoint, or not saved.

    Without the private name, this is taken to be so: slower where a converted module's code drops.
    Compiled code, in which torch recomputes by itself, is not asked.
    """
    if torch.compiler.is_compiling():
        return False
    return not torch.is_grad_enabled() or _saving_hooks() is not None


def in_backward_pass() -> bool:
    """Return whether autograd is running: a forward pass there is a checkpoint's second one."""
    return bool(_current_graph_task() != -1)


def is_checkpoint(frame: Any) -> bool:
    """Return whether a frame of the stack is one of ``torch.utils.checkpoint``, which is public."""
    return frame.f_globals.get("__name__") == "torch.utils.checkpoint"


def is_dropout(module: nn.Module) -> bool:
    """Return whether a module is a layer of dropout by torch's own classes."""
    return isinstance(module, _AnyDropout)


def count_modules(model: nn.Module) -> int:
    """Return how many modules are in a model, itself included; quickly, as it is asked each step.

    Without the private attribute, by way of torch's own methods, which take ten times as long.
    """
    found = [model]
    for module in found:  # which grows meanwhile
        children = getattr(module, "_modules", None)
        below = module.children() if children is None else children.values()
        found += [child for child in below if child is not None]
    return len(found)


def has_hooks(module: nn.Module) -> bool:
    """Return whether somebody's hooks run where a module runs.

    Without the private attributes, hooks of torch's own modules are not looked for.
    """
    return bool(
        getattr(module, "_forward_hooks", None) or getattr(module, "_forward_pre_hooks", None)
    )


def flatten(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of nested containers, and a function that puts others in their places."""
    if _pytree is None:
        return [tree], lambda leaves: leaves[0]
    leaves, structure = _pytree.tree_flatten(tree)
    return leaves, lambda leaves: _pytree.tree_unflatten(leaves, structure)


USUAL_ATTENTION = "eager_attention_forward"
"""The function that modules of Hugging Face mention where their configuration chooses another.

By another name, it is listed as a place of its own, beside the one that is chosen.
"""


def configuration(module: nn.Module) -> Any:
    """Return the configuration of a module of Hugging Face that says which attention it calls."""
    config: Any = vars(module).get("config")
    return config if attention_implementation(config) else None


def attention_implementation(config: Any) -> str:
    """Return which attention function modules of Hugging Face call; "" where it is not known.

    Without the private attribute, calls through a local variable are listed as out of reach.
    """
    chosen: str | None = getattr(config, "_attn_implementation", "")
    return "eager" if chosen is None else chosen  # as there: nobody has chosen for this module
