"""While a converted function runs, ``hk.dropout`` calls QSD.

Haiku's dropout is a function, so there is no layer to swap. Its implementation is replaced while
any converted function runs, in any thread. Code outside of such functions still gets Haiku's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import haiku as hk

from quantal._process_lock import ProcessLock
from quantal._selection import Place, Selection
from quantal.jax._jit_key import jit_key
from quantal.jax._private_api import haiku_dropout
from quantal.jax.haiku._functional import count_draw, dropout
from quantal.sites import Site

__all__ = ["Rerouting", "rerouted"]


_running: ContextVar[Rerouting | None] = ContextVar("_running", default=None)


class Rerouting:
    """What happens to the calls of ``hk.dropout`` in one run of a function.

    Parameters
    ----------
    selection : Selection, optional
        Which of them become QSD; without it, none.
    native : bool
        Whether the others drop units.
    """

    def __init__(self, selection: Selection | None, *, native: bool = True) -> None:
        self._native = native
        self.places: list[Place] = []
        self.outer = _running.get()
        self._selection = selection
        self._calls: Counter[str] = Counter()

    def dropout(self, native: Any, rng: Any, rate: Any, x: Any, broadcast_dims: Any = ()) -> Any:
        """Drop units by QSD or, where no conversion takes this call, by Haiku's own dropout."""
        where = hk.current_name()
        site = Site(f"{where}/dropout_{self._calls[where]}", "dropout", rate)
        self._calls[where] += 1
        alpha = self._alpha(site)
        if alpha is None:
            self._note(site)
            if not self._draws_native():
                return x
            count_draw()
            return native(rng, rate, x, broadcast_dims=broadcast_dims)
        self._note(replace(site, kind="QSD", alpha=alpha))
        return dropout(rng, rate, x, broadcast_dims, alpha=alpha)

    def _alpha(self, site: Site) -> float | None:
        """Return the alpha of a place: that of the innermost conversion that takes it, or None."""
        if self._selection is not None and self._selection(site.name, None):
            return self._selection.alpha_for(site.rate)
        return None if self.outer is None else self.outer._alpha(site)

    def _draws_native(self) -> bool:
        return self._native and (self.outer is None or self.outer._draws_native())

    def _note(self, site: Site) -> None:
        self.places.append(Place(site, None))
        if self.outer is not None:
            self.outer._note(site)


_lock = ProcessLock()
_users = 0


@contextmanager
def rerouted(rerouting: Rerouting, key: Any) -> Iterator[None]:
    """Send calls of ``hk.dropout`` in this block, and in this thread, to a `Rerouting`.

    Functions that are compiled inside are kept apart by the key.
    """
    global _users
    with _lock():
        _users += 1
        if _users == 1:
            haiku_dropout.replace(_dispatch)
    token = _running.set(rerouting)
    try:
        with jit_key(key):
            yield
    finally:
        _running.reset(token)
        with _lock():
            _users -= 1
            if _users == 0:
                haiku_dropout.restore()


def _dispatch(*args: Any, **kwargs: Any) -> Any:
    rerouting, native = _running.get(), haiku_dropout.native
    if rerouting is None:
        return native(*args, **kwargs)
    return rerouting.dropout(native, *args, **kwargs)
