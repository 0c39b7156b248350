"""On which devices a run is, and how its arrays are spread over them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from examples.run import Run
from examples.settings import Settings
from quantal._errors import wrong_value

__all__ = ["Place", "at_work", "check"]


class Place(NamedTuple):
    """Devices in a row, between which the samples of a batch are divided."""

    mesh: Mesh

    @property
    def on_cpu(self) -> bool:
        """Whether the devices are CPUs."""
        return bool(self.mesh.devices.flat[0].platform == "cpu")

    def everywhere(self, tree: Any) -> Any:
        """Put a copy on each device."""
        return jax.device_put(tree, NamedSharding(self.mesh, P()))

    def divided(self, tree: Any, axis: int = 0) -> Any:
        """Divide arrays along the axis of their samples; the compiler does the rest."""
        return jax.device_put(tree, NamedSharding(self.mesh, P(*[None] * axis, "sample")))

    def settled(self, tree: Any) -> Any:
        """Wait for what several CPUs compute, and return it.

        They share the threads of one. If many calls are under way, a thread may wait for the first
        of them to end on its device, while that call has no thread to run in: XLA then stops for
        good (jaxlib 0.10, from 32 calls on).
        """
        return jax.block_until_ready(tree) if self.on_cpu and self.mesh.size > 1 else tree

    def fill(self, samples: int) -> int:
        """Return the least size of a batch that holds so many samples and can be divided."""
        return -(-samples // self.mesh.size) * self.mesh.size


def check(settings: Settings) -> None:
    """Fail if the devices of a run are not there; no data are needed for it."""
    _devices(settings)


@contextmanager
def at_work(run: Run) -> Iterator[Place]:
    """Compute where, and with the precision that, a run asks for; leave no trace in JAX."""
    devices = _devices(run.settings)
    if run.experiment.batch % len(devices):
        expected = f"a divisor of the batch of {run.experiment.batch}"
        raise wrong_value("devices", expected, len(devices))
    mesh = jax.make_mesh((len(devices),), ("sample",), axis_types=(AxisType.Auto,), devices=devices)
    with jax.enable_x64(run.settings.precision == "float64"), jax.default_device(devices[0]):
        yield Place(mesh)


def _devices(settings: Settings) -> list[jax.Device]:
    kind = None if settings.device == "auto" else settings.device
    try:
        found = jax.local_devices(backend=kind)
    except RuntimeError:
        expected = "auto or cpu, since JAX finds no GPU here"
        raise wrong_value("device", expected, settings.device) from None
    if len(found) < settings.devices:
        expected = f"at most {len(found)}, as many as JAX finds here"
        raise wrong_value("devices", expected, settings.devices)
    return found[: settings.devices]
