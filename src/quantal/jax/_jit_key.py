"""What JAX keeps compiled functions by, in addition to their arguments."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import jax

__all__ = ["jit_key"]

_context = jax.make_user_context(None)


def jit_key(key: Any) -> AbstractContextManager[Any]:
    """Keep what is compiled in this block apart from what is compiled with another key.

    For code that runs otherwise in the block than outside; the key has a hash and an equality.
    """
    made: AbstractContextManager[Any] = _context(key)
    return made
