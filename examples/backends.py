"""What each backend's training loop imports, and the line that installs it."""

from __future__ import annotations

import importlib.util

from examples.settings import Settings
from quantal._errors import wrong_value

__all__ = ["first_installed", "require_backend"]

_NEEDS = {
    "torch": ("torch",),
    "keras": ("keras",),  # and what it computes with
    "jax": ("jax", "flax", "optax"),
}
_INSTALL = {  # in a clone; {} is what Keras computes with
    "torch": "pip install -r examples/requirements.txt '.[torch]'",
    "keras": "pip install -r examples/requirements.txt '.[keras-{}]'",
    "jax": "pip install -r examples/requirements-demo.txt",
}


def require_backend(settings: Settings) -> None:
    """Fail with the line to type if the backend of a run is not installed; nothing is imported."""
    if missing := _missing(settings):
        names = " and ".join(missing)
        said = f"backend {settings.backend}: {names} not installed"
        raise ImportError(f"{said}. Type: {_line(settings)}")


def first_installed(experiment: str, *backends: str) -> str:
    """Return the first of some backends that is installed."""
    several = [Settings(experiment, backend) for backend in backends]
    for settings in several:
        if not _missing(settings):
            return settings.backend
    lines = " or ".join(map(_line, several))
    raise wrong_value("backend", f"an installed one; type {lines}", None)


def _line(settings: Settings) -> str:
    return _INSTALL[settings.backend].format(settings.keras_backend)


def _missing(settings: Settings) -> list[str]:
    under = [] if settings.keras_backend is None else [settings.keras_backend]
    needs = [*_NEEDS[settings.backend], *under]
    return [name for name in needs if importlib.util.find_spec(name) is None]
