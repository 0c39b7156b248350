"""Where a process trains: alone on a device, or with the others that torchrun started.

    torchrun --nproc-per-node 2 -m examples run mnist-mlp --backend torch --devices 2

Each takes its rows of every batch, and gradients are averaged: the curve is that of one process,
if the masks are (stream ``portable``). On GPUs, BatchNorm becomes SyncBatchNorm, which normalises
by the statistics of the whole batch; torch has none for CPUs, where such a model is refused.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from examples.run import Run
from examples.settings import Settings
from quantal._errors import wrong_value

__all__ = ["Team", "check", "team"]


@dataclass(frozen=True)
class Team:
    """The processes that share a run, seen from one of them."""

    device: torch.device
    rank: int = 0
    size: int = 1

    def rows(self, batch: NDArray) -> NDArray:
        """Return this process's part of a batch."""
        count = len(batch) // self.size
        return batch[self.rank * count : (self.rank + 1) * count]

    def mean(self, cost: Tensor) -> Tensor:
        """Return the mean over the processes."""
        if self.size > 1:
            dist.all_reduce(cost)
            cost = cost / self.size
        return cost

    def normalised(self, model: nn.Module) -> nn.Module:
        """Let the normalisation of a model see whole batches."""
        if self.size == 1 or not any(isinstance(part, _BatchNorm) for part in model.modules()):
            return model
        if self.device.type == "cpu":
            raise wrong_value("devices", "1 on a CPU for a model with BatchNorm", self.size)
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)

    def averaged(self, model: nn.Module) -> nn.Module:
        """Return the model as it is to be called for its gradients to be averaged."""
        if self.size == 1:
            return model
        ids = None if self.device.type == "cpu" else [self.device]
        return DistributedDataParallel(model, device_ids=ids)


def check(settings: Settings) -> torch.device:
    """Return the device of this process; fail if it, or another of the run's, is not there."""
    size = int(os.environ.get("WORLD_SIZE", 1))
    if settings.devices != size:
        expected = f"1 without torchrun (type: {_command(settings)})"
        if size > 1:
            expected = f"{size}, the number of processes that torchrun started"
        raise wrong_value("devices", expected, settings.devices)
    return _device(settings.device, int(os.environ.get("LOCAL_RANK", 0)))


@contextmanager
def team(run: Run) -> Iterator[Team]:
    """Join the processes that share a run; all leave together."""
    device, size = check(run.settings), run.settings.devices
    if run.experiment.batch % size:
        raise wrong_value("devices", f"a divisor of the batch, {run.experiment.batch}", size)
    if size == 1:
        yield Team(device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if not dist.is_initialized():
        dist.init_process_group("gloo" if device.type == "cpu" else "nccl")
        # Not after each run: processes that meet a second time may wait for ever (torch 2.13).
        atexit.register(dist.destroy_process_group)
    yield Team(device, run.rank, size)
    dist.barrier()  # until the first has written the result


def _device(wanted: str, number: int) -> torch.device:
    found = torch.cuda.device_count()
    if wanted == "cpu" or (wanted == "auto" and not found):
        return torch.device("cpu")
    if not found:
        raise wrong_value("device", "auto or cpu, since torch finds no GPU", wanted)
    if number >= found:
        raise wrong_value(
            "device", f"cpu, since torch finds {found} GPUs for more processes", wanted
        )
    return torch.device("cuda", number)


def _command(settings: Settings) -> str:
    return (
        f"torchrun --nproc-per-node {settings.devices} -m examples run {settings.experiment} "
        f"--backend torch --devices {settings.devices}"
    )
