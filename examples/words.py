"""How tables and figures call a condition."""

from __future__ import annotations

from math import isfinite

from examples.settings import Settings

__all__ = ["backend", "duration", "layer", "measure", "number", "setup"]

_LAYERS = {
    "none": "no dropout",
    "dropout": "dropout",
    "qsd": "QSD",
    "dist-p": "Dist. p",
    "dist-q": "Dist. q",
}
_MEASURES = {"cost": "cost (nats)", "error": "error", "perplexity": "perplexity"}
_PARTS = {"train": "training", "valid": "validation", "test": "test"}


def layer(settings: Settings) -> str:
    """Return the layer, its α if it has one, and what else of it the paper does not have.

    Examples
    --------
    >>> layer(Settings("mnist-mlp", "torch"))
    'QSD α 0.2'
    >>> layer(Settings("mnist-mlp", "torch", unit_mean=True))
    'QSD α 0.2, mean 1'
    """
    name = _LAYERS[settings.layer]
    name = name if settings.alpha is None else f"{name} α {settings.alpha:g}"
    return name + ", mean 1" * settings.unit_mean + ", shared p" * settings.shared_p


def backend(settings: Settings) -> str:
    """Return what computed a run.

    Examples
    --------
    >>> backend(Settings("mnist-mlp", "keras", keras_backend="jax"))
    'keras (jax)'
    """
    under = settings.keras_backend
    return settings.backend if under is None else f"{settings.backend} ({under})"


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
        f"variant {settings.variant}": settings.variant,
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
    >>> number(0.0610), number(9288.5), number(float("inf")), number(None)
    ('0.0610', '9288', 'diverged', '–')
    """
    if value is None:
        return "–"
    if not isfinite(value):
        return "diverged"
    return f"{value:#.{digits}g}".rstrip(".") if abs(value) < 10**digits else f"{value:.0f}"


def duration(seconds: float | None) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> duration(45), duration(3000), duration(90_000), duration(None)
    ('45 s', '50 min', '25 h', 'not recorded')
    """
    if seconds is None:
        return "not recorded"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return (
                f"{seconds / length:.3g} {unit}"
                if seconds < 10 * length
                else f"{seconds / length:.0f} {unit}"
            )
    return f"{seconds:.0f} s"
