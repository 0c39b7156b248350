"""Two processes on gloo: masks that differ by rank, or agree, by the recipes of docs/torch.md."""

import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import SequenceParallel, parallelize_module

import quantal
from quantal.torch import QSD

RANKS = 2
X = torch.ones(4, 50)


def worker(folder, rank):
    # A file, not a port: tests may run side by side.
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    seed, key = 5, quantal.key(5)
    outputs = {}

    torch.manual_seed(seed)
    outputs["same seed"] = QSD(0.5, 1.0)(X)
    torch.manual_seed(seed + rank)
    outputs["seed by rank"] = QSD(0.5, 1.0)(X)
    outputs["shared key"] = QSD(0.5, 1.0, generator=key)(X)
    outputs["key by rank"] = QSD(0.5, 1.0, generator=key.fold_in(rank))(X)

    # Gradients are averaged over ranks, each with its own mask.
    model = torch.nn.Sequential(torch.nn.Linear(50, 20), QSD(0.5, 1.0, generator=key.fold_in(rank)))
    for parameter in model.parameters():
        torch.nn.init.ones_(parameter)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    y = parallel(X)
    y.sum().backward()
    outputs["output"] = y.detach()
    outputs["gradient"] = model[0].bias.grad

    outputs |= distributed_tensors(rank)
    torch.save(outputs, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def distributed_tensors(rank):
    """Dilute DTensors; return what this rank has of them and of their gradients."""
    # torch 2.13 says so to every draw there, dropout's too: a rank of CPUs has its own stream.
    warnings.filterwarnings("ignore", "DTensor random operators may not", UserWarning)
    mesh = init_device_mesh("cpu", (RANKS,))
    whole, key = torch.arange(8 * 50.0).view(8, 50) + 1, quantal.key(7)
    outputs = {}

    def step(name, layer, placement):
        x = distribute_tensor(whole, mesh, [placement]).requires_grad_()
        y = layer(x)
        assert type(y) is DTensor
        assert y.placements == x.placements
        y.sum().backward()
        outputs[name] = y.full_tensor().detach() / whole, x.grad.full_tensor()

    for placement in (Shard(0), Shard(1), Replicate()):
        torch.manual_seed(5 if placement.is_replicate() else 5 + rank)
        whole_axis = 0 if placement == Shard(1) else 1  # what ranks share, they must draw alike
        for axes in ({}, {"broadcast_dims": whole_axis}, {"p_broadcast_dims": whole_axis}):
            step(f"stream {placement} {axes}", QSD(0.5, 1.0, **axes), placement)
        for axes in ({}, {"broadcast_dims": 0}, {"p_broadcast_dims": 1}):
            step(f"key {placement} {axes}", QSD(0.5, 1.0, generator=key, **axes), placement)
    for axes in ({}, {"broadcast_dims": 0}, {"p_broadcast_dims": 1}):
        c = QSD(0.5, 1.0, generator=key, **axes)(torch.ones(8, 50))
        outputs[f"key whole {axes}"] = c, c
    model = nn.Sequential(nn.LayerNorm(50), QSD(0.5, 1.0))
    parallelize_module(model, mesh, dict.fromkeys("01", SequenceParallel(sequence_dim=0)))
    parallel = model(torch.ones(4, 50))
    assert parallel.shape == (8, 50)
    parallel.sum().backward()
    return outputs


def run_ranks():
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "error", __file__, folder]
        ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(RANKS)]
        assert [process.wait(timeout=300) for process in ranks] == [0] * RANKS
        return [torch.load(Path(folder) / f"rank{rank}.pt") for rank in range(RANKS)]


@pytest.fixture(scope="module")
def ranks():
    return run_ranks()


def test_distributed_tensors(ranks):
    first, second = ranks
    names = [name for name in first if name.startswith(("stream", "key S", "key R"))]
    assert len(names) == 18
    for name in names:
        c, gradient = first[name]
        # All ranks agree on what the tensor is, and the gradient has the coefficients of the draw.
        assert torch.equal(c, second[name][0])
        torch.testing.assert_close(c, gradient)
        assert 0 < (c == 0).sum() < c.numel()
        if name.startswith("key"):  # the same as without distribution
            axes = name[name.index("{") :]
            torch.testing.assert_close(c, first[f"key whole {axes}"][0])
    halves = first["stream S(0) {}"][0].chunk(RANKS)
    assert not torch.equal(*halves)  # equal with probability < 2⁻¹⁰⁰


def test_masks_by_rank(ranks):
    first, second = ranks
    for recipe in ("same seed", "shared key"):
        assert torch.equal(first[recipe], second[recipe])
    for recipe in ("seed by rank", "key by rank"):
        assert not torch.equal(first[recipe], second[recipe])  # equal with probability < 2⁻¹⁰⁰
    assert torch.equal(first["gradient"], second["gradient"])
    coefficients = [outputs["output"] / 51 for outputs in (first, second)]
    assert not torch.equal(*coefficients)
    torch.testing.assert_close(first["gradient"], sum(c.sum(0) for c in coefficients) / RANKS)


if __name__ == "__main__":
    worker(sys.argv[1], int(sys.argv[2]))
