"""Attention with QSD beside attention with dropout: memory and time, by the length of a sequence.

    python -m benchmarks.attention

Forward and backward, on a CPU, eight heads of 64 features, float32. The memory is how far that of
the process rises, in a process for each figure.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from benchmarks.memory import rise

LENGTHS = (256, 512, 1024, 2048, 4096)
REPEATS = 3
KINDS = {"dropout": "scaled_dot_product_attention, dropout_p=0.1", "qsd": "the same, converted"}


def measure(job: tuple[str, int]) -> tuple[float, float]:
    """Return megabytes and seconds of one kind of attention at one length."""
    import torch
    import torch.nn.functional as F  # noqa: N812 - torch's own habit

    from quantal.torch._reroute import Rerouting

    kind, length = job
    query, key, value = x = [torch.randn(1, 8, length, 64, requires_grad=True) for _ in range(3)]
    upstream = torch.randn(1, 8, length, 64)

    def step() -> Any:
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
        return torch.autograd.grad(y, x, upstream)

    def converted() -> Any:
        with Rerouting({"scaled_dot_product_attention": 1.0}):
            y = F.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
        return torch.autograd.grad(y, x, upstream)

    run = converted if kind == "qsd" else step
    run()  # once for what is loaded at the first call, and then stays
    return rise(run) / 2**20, min(_seconds(run) for _ in range(REPEATS))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """Print a table."""
    heads = " | ".join(f"{what}, {unit}" for unit in ("MB", "s") for what in ("dropout", "QSD"))
    print(f"| length | {heads} |")
    print("|---|---|---|---|---|")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for length in LENGTHS:
            found = pool.map(measure, [(kind, length) for kind in KINDS], chunksize=1)
            (own_mb, own_s), (mb, s) = found
            print(f"| {length} | {own_mb:.0f} | {mb:.0f} | {own_s:.2g} | {s:.2g} |", flush=True)


if __name__ == "__main__":
    main()
