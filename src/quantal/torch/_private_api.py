"""Every private name of torch and Hugging Face that is used here, and what happens without it.

All were seen in torch 2.13 and transformers 5. If a name is gone, importing quantal still works:
beside each name stands what is used instead, and what that costs.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = [
    "USUAL_ATTENTION",
    "Code",
    "DispatchMode",
    "MoveHook",
    "attention_implementation",
    "compiler_is_loaded",
    "configuration",
    "count_modules",
    "flatten",
    "function_modes_active",
    "has_hooks",
    "has_values",
    "identity_of_memory",
    "in_backward_pass",
    "in_graph",
    "is_checkpoint",
    "is_dropout",
    "is_fake",
    "is_of_compiler",
    "kind_of_code",
    "modes_active",
    "ragged_axis",
    "rates_of_dropout",
    "runs_as_it_is",
    "saving_is_hooked",
    "transforms_active",
    "without_function_modes",
    "without_modes",
]


class Code(enum.Enum):
    """The kind of code that a call is part of; found out once a call, and passed down."""

    EAGER = "eager"
    """Nothing observes the operations, so the fastest ones may be used."""

    TRANSFORMED = "transformed"
    """Eager, but a transform, a dispatch mode or a subclass of Tensor sees every operation."""

    TRACED = "traced"
    """In torch.jit.trace: the recorded operations must serve other shapes and formats."""

    EXPORTED = "exported"
    """In torch.export: the same, but written by torch's compiler."""

    COMPILED = "compiled"
    """In a graph of torch.compile."""


def _private(path: str, otherwise: Any) -> Any:
    """Return a private name of torch, or what is used where this version does not have it."""
    found: Any = torch
    for name in path.split("."):
        found = getattr(found, name, None)
    return otherwise if found is None else found


# Without it, all eager code counts as transformed: slower, and four bytes a unit are kept, not two.
_transforms_active = _private("_C._are_functorch_transforms_active", lambda: True)
# Without it, the same. It knows the batches of torch.autograd.grad(is_grads_batched=True), which
# are no transform.
_is_old_batch = _private("_C._functorch.is_legacy_batchedtensor", lambda x: True)
# Without it, the same; and `dilute` makes the tensors of a table again in every call.
_modes_on_the_stack = _private("_C._len_torch_dispatch_stack", lambda: 1)
# Without it, a checkpoint that recomputes a layer with its own generator is not refused.
_current_graph_task = _private("_C._current_graph_task_id", lambda: -1)

# Without it, the kernels for GPUs are tried within the modes that are active, which count them.
_without_modes = _private("utils._python_dispatch._disable_current_modes", contextlib.nullcontext)
# Without it, those kernels read zeros that torch has not written to memory, as of unused tangents.
_is_zero = _private("Tensor._is_zerotensor", lambda x: False)

# Without either, make_fx(pre_dispatch=True) cannot record a draw.
_key_is_included = _private("_C._dispatch_tls_is_dispatch_key_included", lambda key: False)
_PRE_DISPATCH = _private("_C.DispatchKey.PreDispatch", None)

# Without either, a layer of a converted model runs within the model's mode, which is slower.
_function_modes_active = _private("_C._is_torch_function_mode_enabled", lambda: False)
_without_function_modes = _private("_C.DisableTorchFunction", contextlib.nullcontext)

# Without it, `predict_mc` can average an output that is one tensor, but no structure of several.
_pytree = _private("utils._pytree", None)
# Without it, a class of somebody else's counts as dropout only if it is derived from one of these.
_AnyDropout = _private(
    "nn.modules.dropout._DropoutNd", (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
)

_saving_hooks: Callable[[], Any] = functools.partial(
    _private("_C._autograd._top_saved_tensors_default_hooks", lambda _: ()), False
)

# Without it, torch's public function, which asks more questions and so takes longer.
_is_tracing: Callable[[], bool] = _private("_C._is_tracing", vars(torch.jit)["is_tracing"])


class _NoDispatchMode:
    """What takes the place of torch's dispatch modes where they are gone: it refuses to be made."""

    def __init__(self, *_: Any) -> None:
        raise NotImplementedError(
            f"example: torch {torch.__version__} does not tell which operations it runs, in a way "
            "that quantal knows. Leave example= out."
        )


DispatchMode: Any = _private("utils._python_dispatch.TorchDispatchMode", _NoDispatchMode)
"""The class of contexts that see every operation. Without it, ``example=`` is refused in words."""


class MoveHook(nn.Module):
    """A mixin for modules that need to know when they are moved to another device.

    ``Module._apply``, through which ``to()``, ``cuda()`` and the like go. Without it, a layer
    finds out in its next call.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        super()._apply(fn, recurse)
        self._moved(fn)
        return self

    def _moved(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Do what is needed after a move; ``fn`` is what was done to every tensor of the module."""


_PLAIN = (Tensor, nn.Parameter)


def kind_of_code(x: Tensor) -> Code:
    """Return the kind of code that works on a tensor."""
    if torch.compiler.is_compiling():
        return Code.EXPORTED if torch.compiler.is_exporting() else Code.COMPILED
    if _is_tracing():
        return Code.TRACED
    if not is_plain(x) or _transforms_active() or _modes_on_the_stack() or _is_old_batch(x):
        return Code.TRANSFORMED
    # Recording before dispatch always comes with a function mode, and to ask for that is quicker.
    before_dispatch = _PRE_DISPATCH is not None and _function_modes_active()
    if before_dispatch and _key_is_included(_PRE_DISPATCH):
        return Code.TRANSFORMED
    return Code.EAGER


def in_graph(code: Code) -> bool:
    """Return whether torch's compiler reads the code, to make a graph of it."""
    return code is Code.COMPILED or code is Code.EXPORTED


def runs_as_it_is(x: Tensor) -> bool:
    """Return whether operators are given this very tensor, or a fake one, and not a transform's.

    A dispatch mode may observe them.
    """
    if torch.compiler.is_compiling() or _is_tracing():
        return False
    if not (is_plain(x) or is_fake(x)) or _transforms_active() or _is_old_batch(x):
        return False
    # The numbers in memory are those of the tensor, not to be negated or filled in later.
    return x.layout == torch.strided and not (x.is_neg() or _is_zero(x))


def is_plain(x: Tensor) -> bool:
    """Return whether a tensor is of torch's own class, and no nested one."""
    return type(x) in _PLAIN and not x.is_nested


def modes_active() -> bool:
    """Return whether new tensors belong to a dispatch mode, such as FakeTensorMode.

    They are of no use after it has ended.
    """
    return bool(_modes_on_the_stack())


def transforms_active() -> bool:
    """Return whether new tensors belong to a transform of torch.func, and have no memory."""
    return bool(_transforms_active())


def ragged_axis(x: Tensor) -> int:
    """Return the axis of a jagged tensor along which sizes differ.

    Without the private attribute, the first axis after the batch is assumed: then jagged tensors
    that were transposed come out in another shape.
    """
    return getattr(x, "_ragged_idx", 1)


def mode_to_enter(x: Tensor) -> Any:
    """Return the mode of a fake tensor that is used outside of that mode; None for all others.

    Without the private attribute, torch raises where such a tensor meets the tables.
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
    """Return a number that is the same for tensors that are views of one another.

    Without the private attribute, and for tensors whose memory is not one piece, each tensor has a
    number of its own.
    """
    try:
        return getattr(x.untyped_storage(), "_cdata", id(x))
    except (NotImplementedError, RuntimeError):
        return id(x)


def without_modes() -> contextlib.AbstractContextManager[None]:
    """Return a context in which operators run as if no dispatch mode were active."""
    return _without_modes()


def function_modes_active() -> bool:
    """Return whether some mode sees every call of a function of torch."""
    return bool(_function_modes_active())


def without_function_modes() -> contextlib.AbstractContextManager[None]:
    """Return a context in which functions of torch run as if no such mode were active."""
    context: contextlib.AbstractContextManager[None] = _without_function_modes()
    return context


def rates_of_dropout(operator: Any, args: Any, kwargs: Any) -> list[float]:
    """Return the rates at which an operator drops units, if its or an argument's name says so.

    Without the private attribute, kernels that drop units internally are not recognised.
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
    """Return whether a hook, as of a checkpoint, takes what autograd saves, or nothing is saved.

    Without the private name, the answer is always yes, which is slower where the code of a
    converted module drops units. In compiled code it is no: there torch recomputes by itself.
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


def is_of_compiler(frame: Any) -> bool:
    """Return whether a frame of the stack is of torch's compiler.

    By the names of its modules. If they get other names, the answer is no, and `example=` may
    report masks of a backward pass that repeats the forward pass, which is no miss.
    """
    return str(frame.f_globals.get("__name__")).startswith(("torch._compile", "torch._dynamo"))


def is_dropout(module: nn.Module) -> bool:
    """Return whether a module is a layer of dropout by torch's own classes."""
    return isinstance(module, _AnyDropout)


def count_modules(model: nn.Module) -> int:
    """Return how many modules a model has, itself included; fast, since every step asks.

    Without the private attribute, torch's own methods count, which take ten times as long.
    """
    found = [model]
    for module in found:  # which grows meanwhile
        children = getattr(module, "_modules", None)
        below = module.children() if children is None else children.values()
        found += [child for child in below if child is not None]
    return len(found)


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module has hooks, which run when it runs.

    Without the private attributes, hooks on torch's own modules are not found.
    """
    return bool(
        getattr(module, "_forward_hooks", None) or getattr(module, "_forward_pre_hooks", None)
    )


def flatten(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of nested containers, and a function that puts other leaves there."""
    if _pytree is None:
        return [tree], lambda leaves: leaves[0]
    leaves, structure = _pytree.tree_flatten(tree)
    return leaves, lambda leaves: _pytree.tree_unflatten(leaves, structure)


USUAL_ATTENTION = "eager_attention_forward"
"""The attention function that modules of Hugging Face name as the default of their configuration.

If it gets another name, `sites` lists it too, beside the function that is really chosen.
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
    return "eager" if chosen is None else chosen  # None means the default, also to transformers


def compiler_is_loaded() -> bool:
    """Return whether torch's compiler is loaded, without loading it.

    ``torch._dynamo``. If it gets another name, the answer is no, and `example=` is not watched
    inside of compiled code.
    """
    return "torch._dynamo" in sys.modules
