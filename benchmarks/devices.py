"""The device of a suite, ``cpu`` or ``gpu``, in each framework, and how to wait for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["on_jax", "on_tensorflow", "on_torch"]

Wait = Callable[[], object]


def on_torch(kind: str) -> tuple[Any, Wait]:
    """Return torch's device, and a call that returns when its work is done."""
    import torch

    if kind != "gpu":
        return torch.device(kind), _at_once
    device = torch.accelerator.current_accelerator(check_available=True)
    return device or _none("torch"), torch.accelerator.synchronize


def on_tensorflow(kind: str) -> Wait:
    """Return a call that returns when TensorFlow's device, which it has chosen, is done."""
    import tensorflow as tf

    if kind != "gpu":
        return _at_once
    if not tf.config.list_physical_devices("GPU"):
        _none("TensorFlow")
    return tf.test.experimental.sync_devices


def on_jax(kind: str) -> Wait:
    """Return a call that does nothing, as JAX's arrays are waited for themselves."""
    import jax

    if kind == "gpu" and jax.default_backend() != "gpu":
        _none("JAX")
    return _at_once


def _at_once() -> None:
    pass


def _none(framework: str) -> Any:
    raise SystemExit(f"--device: expected a GPU that {framework} can use. Received: gpu")
