"""What defines a run, checked once, before anything is loaded."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf
from pathlib import Path
from typing import Any

import quantal
from examples.experiments import LAYERS, Experiment, experiment
from examples.files import parsed, write_whole
from quantal._errors import wrong_type, wrong_value

__all__ = ["BACKENDS", "KERAS_BACKENDS", "Settings"]

BACKENDS = ("torch", "keras", "jax")
KERAS_BACKENDS = ("tensorflow", "jax", "torch")
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
    unit_mean : bool
        Whether QSD's coefficients are divided by their mean; its variants have a mean of 1 anyway.
    shared_p : bool
        Whether all samples of a batch share a unit's retain probability; masks stay their own.
    variant : str or None
        Another reading of the experiment, of those that it names; None takes the default.
    keras_backend : str or None
        What Keras computes with: ``tensorflow``, ``jax`` or ``torch``; None takes KERAS_BACKEND of
        the environment, or else tensorflow. It stays None without Keras.

    Examples
    --------
    >>> Settings("mnist-mlp", "torch").dilution
    Dilution(rate=0.2, alpha=0.2)
    >>> Settings("mnist-mlp", "jax", layer="dropout", seed=3).name
    'mnist-mlp/jax/dropout-0.2/seed-3'
    >>> Settings("mnist-mlp", "jax", shared_p=True).name
    'mnist-mlp/jax/qsd-0.2-0.2-shared-p/seed-0'
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
    unit_mean: bool = False
    shared_p: bool = False
    variant: str | None = None
    keras_backend: str | None = None

    def __post_init__(self) -> None:
        paper = self.plan
        _one_of("backend", self.backend, BACKENDS)
        _one_of("layer", self.layer, LAYERS)
        _one_of("precision", self.precision, ("float32", "bfloat16", "float64"))
        _one_of("device", self.device, ("auto", "cpu", "gpu"))
        _one_of("stream", self.stream, ("native", "portable"))
        _count("seed", self.seed, 0, below=2**64)  # as for a portable key
        _count("epochs", self.epochs, 1)
        _count("limit", self.limit, 1)
        _count("devices", self.devices, 1)
        # A parameter that a layer does not have must not be ignored in silence.
        rate = _parameter("rate", self.rate, paper.rate, self.layer, self.layer != "none")
        alpha = _parameter(
            "alpha", self.alpha, paper.alpha, self.layer, self.layer not in ("none", "dropout")
        )
        _flag("unit_mean", self.unit_mean, self.layer, self.layer == "qsd")
        _flag("shared_p", self.shared_p, self.layer, alpha is not None)
        if rate is not None:
            law = quantal.Dilution(rate, inf if alpha is None else alpha)
            rate, alpha = law.rate, alpha if alpha is None else law.alpha
        object.__setattr__(self, "rate", rate)
        object.__setattr__(self, "alpha", alpha)
        if self.epochs is None:
            object.__setattr__(self, "epochs", paper.epochs)
        if self.backend == "keras":
            found = self.keras_backend or os.environ.get("KERAS_BACKEND") or KERAS_BACKENDS[0]
            _one_of("keras_backend", found, KERAS_BACKENDS)
            object.__setattr__(self, "keras_backend", found)
        elif self.keras_backend is not None:
            expected = f"nothing, since backend {self.backend} is not keras"
            raise wrong_value("keras_backend", expected, self.keras_backend)

    @cached_property
    def plan(self) -> Experiment:
        """The experiment itself."""
        return experiment(self.experiment, self.variant)

    @cached_property
    def dilution(self) -> quantal.Dilution | None:
        """The law at the sites; None if there is no layer."""
        if self.rate is None:
            return None
        alpha = inf if self.alpha is None else self.alpha
        vary = _VARY.get(self.layer, "pq")
        return quantal.Dilution(self.rate, alpha, vary=vary, unit_mean=self.unit_mean)

    @property
    def p_broadcast_dims(self) -> tuple[int, ...]:
        """The axes of a site's input along which a retain probability is shared."""
        return (0,) if self.shared_p else ()

    @property
    def condition(self) -> str:
        """The layer and its parameters, and the variant of the experiment, as a word."""
        parts = [self.layer]
        parts += [f"{number:g}" for number in (self.rate, self.alpha) if number is not None]
        parts += ["unit-mean"] * self.unit_mean + ["shared-p"] * self.shared_p
        return "-".join(parts if self.variant is None else [*parts, self.variant])

    @property
    def software(self) -> str:
        """The backend, of Keras also what it computes with, as a word."""
        return self.backend if self.keras_backend is None else f"keras-{self.keras_backend}"

    @property
    def name(self) -> str:
        """The folder of the run, below that of all runs."""
        return f"{self.experiment}/{self.software}/{self.condition}/seed-{self.seed}"

    def but(self, **changes: Any) -> Settings:
        """Return these settings with some changed.

        A new layer brings the paper's parameters, a new backend its own default.
        """
        if "layer" in changes:
            paper = {"rate": None, "alpha": None, "unit_mean": False, "shared_p": False}
            changes = paper | changes
        if "backend" in changes:
            changes = {"keras_backend": None} | changes
        return replace(self, **changes)

    def write(self, path: Path) -> None:
        """Write them as JSON."""
        write_whole(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: Path) -> Settings:
        """Read what `write` wrote."""
        return cls(**parsed(path.read_bytes()))


def _one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise wrong_value(name, f"one of {', '.join(allowed)}", value)


def _count(name: str, value: Any, least: int, below: float = inf) -> None:
    expected = f"an integer of at least {least}" + (f" and below {below}" if below < inf else "")
    if value is None and name in ("epochs", "limit"):
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(name, expected, value)
    if not least <= value < below:
        raise wrong_value(name, expected, value)


def _parameter(
    name: str, given: float | None, default: float, layer: str, has: bool
) -> float | None:
    if has:
        return default if given is None else given
    if given is not None:
        raise wrong_value(name, f"nothing, since layer {layer} has no {name}", given)
    return None


def _flag(name: str, value: Any, layer: str, has: bool) -> None:
    if not isinstance(value, bool):
        raise wrong_type(name, "True or False", value)
    if value and not has:
        raise wrong_value(name, f"False, since it changes nothing of layer {layer}", value)
