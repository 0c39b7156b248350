"""Two processes, each with its own draws by the fused path, and gradients that are averaged."""

import os
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from quantal.torch import QSD, _fused, _self_check

RANKS = 2


def one_rank(folder, rank):
    """Run one step of a model; write and return its input, output and gradients."""
    # A file, not a port: tests may run side by side.
    dist.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    try:
        torch.manual_seed(rank)
        model = torch.nn.Sequential(torch.nn.Linear(20, 30), QSD(0.4, 0.2))
        parallel = torch.nn.parallel.DistributedDataParallel(model)
        x = torch.randn(8, 20)
        assert _fused.serves(model[0](x))
        y = parallel(x)
        y.sum().backward()
        with torch.no_grad():
            c = y / model[0](x)
        found = {"x": x, "c": c, **{name: p.grad for name, p in model.named_parameters()}}
        torch.save(found, f"{folder}/rank{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.usefixtures("on_cpu")
def test_gradients_are_averaged_over_the_draws_of_all_ranks(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    other = subprocess.Popen([sys.executable, __file__, str(tmp_path)], env=environment)
    try:
        one_rank(tmp_path, 0)
        assert other.wait(timeout=120) == 0
    finally:
        other.kill()
    ranks = [torch.load(tmp_path / f"rank{rank}.pt") for rank in range(RANKS)]
    assert not torch.equal(ranks[0]["c"], ranks[1]["c"])
    for found in ranks:
        torch.testing.assert_close(found["0.bias"], sum(r["c"].sum(0) for r in ranks) / RANKS)
        weight = sum(r["c"].T @ r["x"] for r in ranks) / RANKS
        torch.testing.assert_close(found["0.weight"], weight)


if __name__ == "__main__":
    _self_check.DEVICES.add("cpu")
    one_rank(sys.argv[1], 1)
