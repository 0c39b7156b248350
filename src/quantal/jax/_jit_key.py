"""What JAX keeps compiled functions by, in addition to their arguments."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax

__all__ = ["jit_key"]

# Older versions of JAX have no such thing: there, functions are to be compiled inside the block.
_make: Any = getattr(jax, "make_user_context", None)
_context: Any = nullcontext if _make is None else _make(None)


def jit_key(key: Any) -> AbstractContextManager[Any]:
    """Keep what is compiled in this block apart from what is compiled with another key.

    For code that runs otherwise in the block than outside; the key has a hash and an equality.
    """
    made: AbstractContextManager[Any] = _context(key)
    return made
