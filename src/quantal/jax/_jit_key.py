"""A context that adds a key to JAX's cache of compiled functions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax

__all__ = ["jit_key"]

_context = jax.make_user_context(None)


def jit_key(key: Any) -> AbstractContextManager[Any]:
    """Do not reuse, in this block, what was compiled outside of it or with another key.

    This is for code that behaves differently in the block. The key must be hashable.
    """
    made: AbstractContextManager[Any] = _context(key)
    return made
