"""In what kind of code a call stands."""

from __future__ import annotations

import torch

__all__ = ["transformed"]


def transformed() -> bool:
    """Return whether code is compiled or under a transform of ``torch.func``, not run as it is."""
    return torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
