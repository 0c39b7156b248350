"""Where and how precisely a run computes; Keras's own settings are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import keras

from examples.run import Run
from examples.settings import Settings
from quantal._errors import wrong_value

__all__ = ["check", "environment"]


def check(settings: Settings) -> list[str]:
    """Return the devices that a run may use; fail if there are none, or Keras is not as it asks."""
    if settings.keras_backend != keras.backend.backend():
        expected = f"{keras.backend.backend()}, which Keras was loaded with"
        raise wrong_value("keras_backend", expected, settings.keras_backend)
    auto = settings.device == "auto"
    found = _devices("gpu") or _devices("cpu") if auto else _devices(settings.device)
    if not found:
        expected = "auto or cpu, since Keras finds no GPU here"
        raise wrong_value("device", expected, settings.device)
    return found


@contextmanager
def environment(run: Run) -> Iterator[None]:
    """Hold the precision, device and distribution of a run."""
    settings, found = run.settings, check(run.settings)
    with ExitStack() as stack:
        stack.enter_context(_precision(settings.precision))
        if settings.devices > 1:
            stack.enter_context(_shared(found, settings.devices, run.experiment.batch).scope())
        elif settings.device != "auto":
            stack.enter_context(keras.device(found[0]))
        yield


@contextmanager
def _precision(name: str) -> Iterator[None]:
    backend = keras.backend.backend()
    if name == "float64" and backend != "tensorflow":
        expected = f"float32 or bfloat16 with Keras on {backend}, which computes with 32 bits"
        raise wrong_value("precision", expected, name)
    floats, policy = keras.config.floatx(), keras.config.dtype_policy()
    keras.config.set_floatx("float64" if name == "float64" else "float32")
    keras.config.set_dtype_policy("mixed_bfloat16" if name == "bfloat16" else name)
    try:
        yield
    finally:
        keras.config.set_floatx(floats)
        keras.config.set_dtype_policy(policy)


def _devices(kind: str) -> list[str]:
    """Return the names of the devices of a kind."""
    if keras.backend.backend() == "torch":
        import torch

        count = torch.cuda.device_count() if kind == "gpu" else 1
        return [f"{kind}:{number}" for number in range(count)]
    try:
        return keras.distribution.list_devices(kind)
    except RuntimeError:  # of JAX, which knows no such kind here
        return []


def _shared(found: list[str], count: int, batch: int) -> Any:
    """Return the distribution of every training batch over some devices."""
    backend = keras.backend.backend()
    if backend != "jax":
        expected = f"1 with Keras on {backend}: its distribution needs KERAS_BACKEND=jax"
        raise wrong_value("devices", expected, count)
    if count > len(found):
        raise wrong_value("devices", f"at most the {len(found)} that are there", count)
    if batch % count:
        raise wrong_value("devices", f"a divisor of the batch of {batch}", count)
    return Rows(devices=found[:count])


class Rows(keras.distribution.DataParallel):
    """Gives each device its rows of a batch, or all of them where they cannot be divided."""

    def get_data_layout(self, data_shape: tuple[int, ...]) -> Any:
        if data_shape[0] % self.num_model_replicas:
            axes = [None] * len(data_shape)
            return keras.distribution.TensorLayout(axes, self.device_mesh)
        return super().get_data_layout(data_shape)
