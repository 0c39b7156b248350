"""What defines a run, checked once, before anything is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import quantal
from examples.experiments import LAYERS, Experiment, experiment
from examples.files import write_whole
from quantal._errors import wrong_type, wrong_value

__all__ = ["BACKENDS", "Settings"]

BACKENDS = ("torch", "keras", "jax")
_VARY: dict[str, Any] = {"qsd": "pq", "dist-p": "p", "dist-q": "q"}


@dataclass(frozen=True)
class Settings:
    """One run: an experiment in one backend, under one condition, from one seed.

    Parameters
    ----------
    experiment, backend : str
        Which experiment, and in ``torch``, ``keras`` or ``jax``.
    layer : str
        What stands at the sites: ``none``, ``dropout``, ``qsd``, ``dist-p`` or ``dist-q``.
    rate, alpha : float or None
        None takes the paper's; it stays None where the layer has no such parameter.
    seed : int
        Of the initial weights, the batches and the masks.
    epochs : int or None
        None takes the paper's.
    limit : int or None
        Use only so many samples of each split (words, of a text).
    precision : str
        ``float32``, ``bfloat16`` (products; weights stay float32), or ``float64`` to compare.
    device : str
        ``auto``, ``cpu`` or ``gpu``.
    stream : str
        ``native``: masks from the framework's own stream; ``portable``: from a `quantal.key`, the
        same in all backends.
    devices : int
        How many devices share each batch: of this process (JAX, Keras), or one for each process
        that torchrun starts (torch).

    Examples
    --------
    >>> Settings("mnist-mlp", "torch").dilution
    Dilution(rate=0.2, alpha=0.2)
    >>> Settings("mnist-mlp", "jax", layer="dropout", seed=3).name
    'mnist-mlp/jax/dropout-0.2/seed-3'
    """

    experiment: str
    backend: str
    layer: str = "qsd"
    rate: float | None = None
    alpha: float | None = None
    seed: int = 0
    epochs: int | None = None
    limit: int | None = None
    precision: str = "float32"
    device: str = "auto"
    stream: str = "native"
    devices: int = 1

    def __post_init__(self) -> None:
        paper = experiment(self.experiment)
        _one_of("backend", self.backend, BACKENDS)
        _one_of("layer", self.layer, LAYERS)
        _one_of("precision", self.precision, ("float32", "bfloat16", "float64"))
        _one_of("device", self.device, ("auto", "cpu", "gpu"))
        _one_of("stream", self.stream, ("native", "portable"))
        _count("seed", self.seed, 0)
        _count("epochs", self.epochs, 1)
        _count("limit", self.limit, 1)
        _count("devices", self.devices, 1)
        # A parameter that a layer does not have must not be ignored in silence.
        rate = _parameter("rate", self.rate, paper.rate, self.layer, self.layer != "none")
        alpha = _parameter(
            "alpha", self.alpha, paper.alpha, self.layer, self.layer not in ("none", "dropout")
        )
        if rate is not None:
            law = quantal.Dilution(rate, inf if alpha is None else alpha)
            rate, alpha = law.rate, alpha if alpha is None else law.alpha
        object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "alpha", alpha)
        if self.epochs is None:
            object.__setattr__(self, "epochs", paper.epochs)

    @cached_property
    def plan(self) -> Experiment:
        """The experiment itself."""
        return experiment(self.experiment)

    @cached_property
    def dilution(self) -> quantal.Dilution | None:
        """The law at the sites; None if there is no layer."""
        if self.rate is None:
            return None
        alpha = inf if self.alpha is None else self.alpha
        return quantal.Dilution(self.rate, alpha, vary=_VARY.get(self.layer, "pq"))

    @property
    def condition(self) -> str:
        """The layer and its parameters, as a word."""
        numbers = (f"{number:g}" for number in (self.rate, self.alpha) if number is not None)
        return "-".join([self.layer, *numbers])

    @property
    def name(self) -> str:
        """The folder of the run, below that of all runs."""
        return f"{self.experiment}/{self.backend}/{self.condition}/seed-{self.seed}"

    def but(self, **changes: Any) -> Settings:
        """Return these settings with some changed; a new layer brings the paper's parameters."""
        if "layer" in changes:
            changes = {"rate": None, "alpha": None} | changes
        return replace(self, **changes)

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read what `write` wrote."""
        return cls(**json.loads(path.read_text()))


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise wrong_value(name, f"one of {', '.join(allowed)}", value)


def _count(name: str, value: Any, least: int) -> None:
    expected = f"an integer of at least {least}"
    if value is None and name in ("epochs", "limit"):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, expected, value)
    if value < least:
        raise wrong_value(name, expected, value)


def _parameter(
    name: str, given: float | None, default: float, layer: str, has: bool
) -> float | None:
    if has:
        return default if given is None else given
    if given is not None:
        raise wrong_value(name, f"nothing, since layer {layer} has no {name}", given)
    return None
