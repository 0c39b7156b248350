"""``quantal.dilute`` for the arrays of any framework, without importing one that is not in use."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

from quantal._errors import install_command, wrong_type

__all__ = ["dilute", "register"]


class _Backend(NamedTuple):
    arrays: str
    module: str
    install: str
    source: str


# By the top-level package in which an array's class, or a base of it, is defined.
_BACKENDS: dict[str, _Backend] = {}


def register(package: str, *, arrays: str, module: str, install: str, source: str = "rng") -> None:
    """Let `dilute` accept the arrays of a framework.

    Parameters
    ----------
    package : str
        The top-level package that defines the array class.
    arrays : str
        What these arrays are called in messages.
    module : str
        The module whose ``dilute`` takes them; it is imported when one comes.
    install : str
        The command that installs what is needed.
    source : str
        What that ``dilute`` calls its source of randomness.
    """
    _BACKENDS[package] = _Backend(arrays, module, install, source)


for _package, _arrays, _module, _extra, _source in (
    ("numpy", "numpy.ndarray", "quantal.numpy", "", "rng"),
    ("torch", "torch.Tensor", "quantal.torch", "torch", "generator"),
    ("tensorflow", "tensorflow.Tensor", "quantal.tensorflow", "tensorflow", "rng"),
    ("jax", "jax.Array", "quantal.jax", "jax", "key"),
    ("jaxlib", "jax.Array", "quantal.jax", "jax", "key"),
):
    _install = install_command(_extra)
    register(_package, arrays=_arrays, module=_module, install=_install, source=_source)


def dilute(
    x: Any,
    rate: float,
    alpha: float | None = None,
    *,
    rng: Any = None,
    training: bool = True,
    **law_and_granularity: Any,
) -> Any:
    """Multiply every unit of an array by a random coefficient of Quantal Synaptic Dilution.

    Parameters
    ----------
    x : array
        A floating-point array of NumPy, PyTorch, TensorFlow or JAX.
    rate : float
        The probability in [0, 1] that a unit is dropped.
    alpha : float
        The homogeneity, above 0; ``inf`` is standard dropout.
    rng : optional
        That framework's source of randomness, or a `quantal.key`. Left out, a source is taken that
        the framework's own dropout would take; JAX has none, and needs a key.
    training : bool
        False returns x itself, as does a rate of 0.
    vary, unit_mean
        As in `Dilution`.
    broadcast_dims : int or tuple of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : int or tuple of int
        Axes along which only the retain probability is shared; masks stay independent.

    Returns
    -------
    array
        Of the same type, shape and dtype.

    Examples
    --------
    >>> import numpy as np, quantal
    >>> quantal.dilute(np.ones((2, 4), np.float32), 0.5, 1.0, rng=quantal.key(0))
    array([[0.6197041, 3.8779285, 0.       , 0.       ],
           [2.8753822, 0.       , 1.8864882, 0.       ]], dtype=float32)
    """
    for base in type(x).__mro__:
        backend = _BACKENDS.get(str(base.__module__).partition(".")[0])
        if backend is not None:
            adapter = importlib.import_module(backend.module)
            source = {backend.source: rng}
            return adapter.dilute(
                x, rate, alpha, training=training, **source, **law_and_granularity
            )
    known = dict.fromkeys(f"{b.arrays} ({b.install})" for b in _BACKENDS.values())
    raise wrong_type("x", f"an array: {', '.join(known)}", type(x))
