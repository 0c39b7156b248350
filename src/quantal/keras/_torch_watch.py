"""The masks that torch draws without QSD, which compares no random numbers of its."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from quantal._watch import MaskFinder, NativeMask

__all__ = ["native_masks"]


def native_masks(run: Callable[[], Any]) -> list[NativeMask]:
    """Run a function, and return every mask that is drawn meanwhile.

    Examples
    --------
    >>> import torch
    >>> [mask.rate for mask in native_masks(lambda: torch.dropout(torch.ones(8), 0.25, True))]
    [0.25]
    """
    bernoulli = ("bernoulli", "bernoulli_")
    finder = MaskFinder(
        random=("rand", "rand_like", "uniform_", "uniform"),
        passed_on=("add", "add_", "sub", "rsub", "mul", "_to_copy", "view", "unsqueeze", "expand"),
        masks={
            **dict.fromkeys(("gt", "ge"), lambda inputs: _number(inputs, 1)),
            **dict.fromkeys(("lt", "le"), lambda inputs: 1 - _number(inputs, 1)),
            **dict.fromkeys(("floor", "floor_"), lambda _: math.nan),
            **dict.fromkeys(bernoulli, lambda inputs: 1 - _number(inputs, 1)),
            "native_dropout": lambda inputs: _number(inputs, 1),
        },
        drawn=(*bernoulli, "native_dropout"),
    )

    class Watcher(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            outputs = func(*args, **(kwargs or {}))
            listed = outputs if isinstance(outputs, tuple | list) else [outputs]
            finder.see(func.overloadpacket.__name__, args, listed)
            return outputs

    with Watcher():
        run()
    return finder.found


def _number(inputs: Any, position: int) -> float:
    value = inputs[position] if position < len(inputs) else math.nan
    return float(value) if isinstance(value, int | float) else math.nan
