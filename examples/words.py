"""How tables and figures call a condition."""

from __future__ import annotations

from math import isfinite, isnan

from examples.settings import Settings

__all__ = ["layer", "measure", "number", "setup"]

_LAYERS = {
    "none": "no layer",
    "dropout": "dropout",
    "qsd": "QSD",
    "dist-p": "Dist. p",
    "dist-q": "Dist. q",
}
_MEASURES = {"cost": "cost (nats)", "error": "error", "perplexity": "perplexity"}
_PARTS = {"train": "training", "valid": "validation", "test": "test"}


def layer(settings: Settings) -> str:
    """Return the layer, and its α if it has one.

    Examples
    --------
    >>> layer(Settings("mnist-mlp", "torch"))
    'QSD α 0.2'
    """
    name = _LAYERS[settings.layer]
    return f"{name} α {settings.alpha:g}" if isfinite(settings.alpha or 0) else name


def setup(settings: Settings) -> str:
    """Return in what a run differs from the paper's, whatever its layer; empty if in nothing.

    Examples
    --------
    >>> setup(Settings("mnist-mlp", "torch", epochs=3, limit=1000))
    '3 of 100 epochs, 1000 samples'
    """
    plan = settings.plan
    parts = {
        f"{settings.epochs} of {plan.epochs} epochs": settings.epochs != plan.epochs,
        f"{settings.limit} {'words' if plan.data == 'ptb' else 'samples'}": settings.limit,
        settings.precision: settings.precision != "float32",
        "portable masks": settings.stream == "portable",
    }
    return ", ".join(text for text, differs in parts.items() if differs)


def measure(name: str, *, rmse: bool = False) -> str:
    """Return the name of a measure for people.

    Examples
    --------
    >>> measure("test_cost")
    'test cost (nats)'
    """
    part, kind = name.split("_")
    return f"{_PARTS[part]} {'error (RMSE)' if rmse else _MEASURES[kind]}"


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits; a run without one has diverged.

    Examples
    --------
    >>> number(0.0610), number(81.82), number(float("inf")), number(None)
    ('0.0610', '81.8', 'diverged', '–')
    """
    if value is None:
        return "–"
    if isnan(value) or not isfinite(value):
        return "diverged"
    return f"{value:#.{digits}g}".rstrip(".")
