"""Two processes on gloo: masks that differ by rank, or agree, by the recipes of docs/torch.md."""

import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

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

    torch.save(outputs, f"{folder}/rank{rank}.pt")
    dist.destroy_process_group()


def test_masks_by_rank():
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "error", __file__, folder]
        ranks = [subprocess.Popen([*command, str(rank)]) for rank in range(RANKS)]
        assert [process.wait(timeout=120) for process in ranks] == [0] * RANKS
        first, second = (torch.load(Path(folder) / f"rank{rank}.pt") for rank in range(RANKS))
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
