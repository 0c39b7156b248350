"""Dropout against QSD on data that needs no download."""

from __future__ import annotations

from pathlib import Path

from examples.backends import first_installed
from examples.progress import watch
from examples.records import collect
from examples.run import train, train_together
from examples.settings import Settings
from examples.statistics import conditions

__all__ = ["demo"]


def demo(backend: str | None, out: Path, *, seeds: int = 16, epochs: int | None = None) -> None:
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

    # JAX comes first: it trains all seeds at once.
    backend = backend or first_installed("digits-mlp", "jax", "torch", "keras")
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
    print(_verdict(out, backend))
    print(f"figure: {comparison(out, out / 'digits.png')}")


def _verdict(out: Path, backend: str) -> str:
    """Say what the demo shows, by pairs of runs from the same seed."""
    own = [c for c in conditions(collect(out)).values() if c.settings.backend == backend]
    found = {condition.layer: condition for condition in own}
    lower, pairs, p = found["qsd"].paired(found["dropout"], "test_cost")
    return (
        f"From the same seed, QSD's test cost is below dropout's in {lower} of {pairs} pairs "
        f"(signed-rank test: P = {p:.2g})"
    )
