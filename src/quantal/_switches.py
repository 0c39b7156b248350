"""Parts of a model that are switched for the length of a context, by several threads at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from quantal._process_lock import ProcessLock

__all__ = ["Switches"]

State = TypeVar("State")


class _Held(NamedTuple, Generic[State]):
    """A part that some context has switched; the contexts are in the order they began."""

    own: State
    wanted: dict[object, State]


class Switches(Generic[State]):
    """Switch parts of a model, and give each its own state back when the last context has ended.

    Contexts of several threads need not end in the order they began. Where several want the same
    part, the last one counts.

    Parameters
    ----------
    read : function
        From a part to its state.
    write : function
        Puts a part into a state.

    Examples
    --------
    >>> switches, lamp = Switches(lambda lamp: lamp["on"], lambda l, on: l.update(on=on)), {"on": 0}
    >>> one, two = switches.set([(lamp, 1)]), switches.set([(lamp, 2)])
    >>> for step in one.__enter__, two.__enter__:
    ...     step()
    >>> for context in one, two:
    ...     _ = context.__exit__(None, None, None)
    ...     print(lamp)
    {'on': 2}
    {'on': 0}
    """

    def __init__(self, read: Callable[[Any], State], write: Callable[[Any, State], object]) -> None:
        self._read, self._write = read, write
        self._held: dict[int, _Held[State]] = {}
        self._lock = ProcessLock()

    @contextmanager
    def set(self, wanted: Iterable[tuple[Any, State]]) -> Iterator[None]:
        """Have parts in certain states in this block."""
        context, wanted = object(), list(wanted)  # which keeps them alive, so that ids are theirs
        try:
            with self._lock():
                for part, state in wanted:
                    own = self._read(part)
                    held = self._held.setdefault(id(part), _Held(own, {}))
                    held.wanted[context] = state
                    self._write(part, state)
            yield
        finally:
            with self._lock():
                for part, _ in wanted:
                    self._leave(part, context)

    def _leave(self, part: Any, context: object) -> None:
        held = self._held.get(id(part))
        if held is None or context not in held.wanted:  # it failed on entering
            return
        del held.wanted[context]
        if held.wanted:
            self._write(part, [*held.wanted.values()][-1])
        else:
            del self._held[id(part)]
            self._write(part, held.own)
