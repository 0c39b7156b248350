"""The masks that torch draws without QSD, which compares no random numbers of its own making."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from quantal._watch import MaskFinder, NativeMask
from quantal.torch._private_api import rates_of_dropout

__all__ = ["MaskWatch", "native_masks"]

_BERNOULLI = ("bernoulli", "bernoulli_")
_DROPOUT = ("native_dropout", "_fused_dropout")
# What leaves random numbers random: a mask can still be made of them.
_PASSED_ON = (
    "add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "neg", "_to_copy", "clone",
    "detach", "alias", "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "slice",
    "select", "permute", "transpose", "t", "repeat", "copy_", "lift_fresh",
)  # fmt: skip


class MaskWatch(TorchDispatchMode):
    """Within it, every operation is looked at, and masks that are drawn are found.

    Attributes
    ----------
    finder : MaskFinder
        What it has found.
    """

    def __init__(self) -> None:
        super().__init__()
        self.finder = MaskFinder(
            random=("rand", "rand_like", "uniform_", "uniform"),
            passed_on=_PASSED_ON,
            masks={
                **dict.fromkeys(("gt", "ge"), lambda inputs: _number(inputs, 1)),
                **dict.fromkeys(("lt", "le"), lambda inputs: 1 - _number(inputs, 1)),
                **dict.fromkeys(("floor", "floor_", "round"), lambda _: math.nan),
                "bernoulli": lambda inputs: 1 - _number(inputs, 1),
                "bernoulli_": lambda inputs: 1 - _number([*inputs, 0.5], 1),  # the default
                **dict.fromkeys(_DROPOUT, lambda inputs: _number(inputs, 1)),
                "dropout": lambda inputs: _number(inputs, 0),
            },
            drawn=(*_BERNOULLI, *_DROPOUT, "dropout"),
        )

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at it."""
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        kind = func.overloadpacket.__name__
        rates = rates_of_dropout(func, args, kwargs)
        if kind in (*_DROPOUT, *_BERNOULLI) or not rates:
            listed = outputs if isinstance(outputs, tuple | list) else [outputs]
            if any(isinstance(each, Tensor) and _is_mask_shaped(each) for each in listed):
                self.finder.see(kind, args, listed)
        else:  # a kernel that drops units inside, as of attention
            self.finder.see("dropout", rates, [])
        return outputs


def native_masks(run: Callable[[], Any]) -> list[NativeMask]:
    """Run a function, and return every mask that is drawn meanwhile.

    Examples
    --------
    >>> import torch
    >>> [mask.rate for mask in native_masks(lambda: torch.dropout(torch.ones(8), 0.25, True))]
    [0.25]
    """
    with MaskWatch() as watch:
        run()
    return watch.finder.found


def _is_mask_shaped(tensor: Tensor) -> bool:
    # One number decides about a whole model or layer, not about units; but where it has axes, it
    # is for a batch of one.
    return tensor.numel() > 1 or tensor.dim() > 1


def _number(inputs: Any, position: int) -> float:
    value = inputs[position] if position < len(inputs) else math.nan
    return float(value) if isinstance(value, int | float) else math.nan
