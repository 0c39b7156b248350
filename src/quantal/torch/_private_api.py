"""In what kind of code a call stands."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["is_fake", "is_plain", "transformed", "without_modes"]


def transformed() -> bool:
    """Return whether code is compiled or under a transform of ``torch.func``, not run as it is."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()


def is_plain(x: Tensor) -> bool:
    """Return whether a tensor is torch's own, not a subclass with rules of its own."""
    return type(x) in (Tensor, torch.nn.Parameter)


def is_fake(x: Tensor) -> bool:
    """Return whether a tensor has a device but no values."""
    return isinstance(x, FakeTensor)


def without_modes() -> AbstractContextManager[None]:
    """Return a context in which operators run, whatever dispatch modes are active outside."""
    return _disable_current_modes()
