"""Dropout against QSD on data that needs no download."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from examples.progress import watch
from examples.run import train, train_together
from examples.settings import Settings
from quantal._errors import wrong_value

__all__ = ["demo"]

# What each backend's loop imports. JAX comes first: it trains all seeds at once.
_NEEDS = {
    "jax": ("jax", "flax", "optax"),
    "torch": ("torch",),
    "keras": ("keras", "tensorflow"),
}


def demo(backend: str | None, out: Path, *, seeds: int = 8, epochs: int | None = None) -> None:
    """Train both from the same seeds, print the comparison and draw it.

    Parameters
    ----------
    backend : str or None
        None takes the first that is installed.
    out : path
        The folder of the runs and of the figure, ``digits.png``.
    seeds : int
        How many runs of each.
    epochs : int, optional
        Of each run.
    """
    from examples.figures import comparison
    from examples.report import compare

    backend = backend or _installed()
    for layer in ("dropout", "qsd"):
        many = [
            Settings("digits-mlp", backend, layer=layer, seed=seed, epochs=epochs)
            for seed in range(seeds)
        ]
        if backend == "jax":
            print(f"{seeds} seeds at once; shown is the first", flush=True)
            train_together(many, out, watch=watch())
        else:
            for one in many:
                train(one, out, watch=watch())
    print(compare(out))
    print(f"figure: {comparison(out, out / 'digits.png')}")


def _installed() -> str:
    for backend, packages in _NEEDS.items():
        if all(importlib.util.find_spec(package) for package in packages):
            return backend
    expected = " or ".join(" with ".join(packages) for packages in _NEEDS.values())
    raise wrong_value("backend", f"an installation of {expected}", "none")
