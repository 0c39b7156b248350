"""What the C library does with memory that is free again."""

from __future__ import annotations

import ctypes
import os
import platform

__all__ = ["keep_freed_memory"]

# Names and numbers of <malloc.h>: blocks of up to 1 GB come from the heap, and it never shrinks.
_MALLOPT = {-3: 2**30, -1: 2**31 - 1, -2: 2**26}  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD


def keep_freed_memory() -> bool:
    """Keep freed memory for the next step, where glibc would return it; tell whether it does.

    By default glibc returns large blocks to the kernel, which clears each page anew when the next
    step asks for as much: up to a third of the time of a training step on a CPU. A user's own
    settings in the environment are left alone.
    """
    chosen = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if chosen or platform.libc_ver()[0] != "glibc":
        return False
    library = ctypes.CDLL(None)
    return all(library.mallopt(name, value) == 1 for name, value in _MALLOPT.items())
