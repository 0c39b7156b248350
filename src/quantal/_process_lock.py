"""Locks that do not outlive a fork: one place that renews them all."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakSet

__all__ = ["ProcessLock"]


class ProcessLock:
    """A lock of this process: ``with lock(): …``.

    A forked child has a copy of every lock, but not of the thread that may hold it, and would wait
    for ever. So all locks are replaced in the child by new ones, which are open.

    Parameters
    ----------
    make : function
        What makes the lock: ``threading.Lock``, or ``threading.RLock`` for one that a thread may
        take several times.

    Examples
    --------
    >>> lock = ProcessLock()
    >>> with lock() as taken:
    ...     taken
    True
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]] = threading.Lock) -> None:
        self._make = make
        self._lock = make()
        _LOCKS.add(self)

    def __call__(self) -> AbstractContextManager[Any]:
        """Return the lock itself, so that it is the one taken that is released."""
        return self._lock

    def renew(self) -> None:
        """Forget the lock, whoever holds it."""
        self._lock = self._make()


_LOCKS: WeakSet[ProcessLock] = WeakSet()


def _renew_all() -> None:
    for lock in _LOCKS:
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
