"""What each backend's training loop imports, and the line that installs it."""

from __future__ import annotations

import importlib.util

from quantal._errors import wrong_value

__all__ = ["first_installed", "require_backend"]

_NEEDS = {
    "torch": ("torch",),
    "keras": ("keras", "tensorflow"),
    "jax": ("jax", "flax", "optax"),
}
_INSTALL = {
    "torch": "pip install '.[examples,torch]'",
    "keras": "pip install '.[examples,keras]' tensorflow",
    "jax": "pip install '.[demo]'",
}


def require_backend(backend: str) -> None:
    """Fail with the line to type if a backend is not installed; nothing is imported."""
    if missing := _missing(backend):
        names = " and ".join(missing)
        raise ImportError(f"backend {backend}: {names} not installed. Type: {_INSTALL[backend]}")


def first_installed(order: tuple[str, ...] = ("jax", "torch", "keras")) -> str:
    """Return the first backend that is installed."""
    for backend in order:
        if not _missing(backend):
            return backend
    lines = " or ".join(_INSTALL[backend] for backend in order)
    raise wrong_value("backend", f"an installed one (type {lines})", None)


def _missing(backend: str) -> list[str]:
    return [name for name in _NEEDS[backend] if importlib.util.find_spec(name) is None]
