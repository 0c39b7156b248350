"""Time forward and backward passes in PyTorch: QSD beside dropout.

Run ``python benchmarks/bench_torch.py`` on a quiet machine: where threads have to wait for a core,
what runs in parallel suffers more than what does not, as the random numbers of native dropout.
The first row of each table is the baseline; the project's bars are printed below, and the exit
status is the number of those missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch
from harness import compare, keep_memory, table
from torch import Tensor, nn

import quantal
from quantal.torch import QSD, dilute

RATE, ALPHA = 0.2, 0.2
SHAPES = {(1024, 4096): 15, (64, 256): 31}  # and the rounds
EAGER, COMPILED = "nn.Dropout, eager", "nn.Dropout, compiled"
QSD_EAGER, QSD_COMPILED = "QSD, eager", "QSD, compiled"
PAPER = "two gammas, eager"
# (shape, candidate, baseline, most)
BARS = [
    ((1024, 4096), QSD_EAGER, EAGER, 0.5),
    ((1024, 4096), QSD_COMPILED, COMPILED, 1.0),
    ((64, 256), QSD_EAGER, EAGER, 1.3),
    ((64, 256), QSD_COMPILED, COMPILED, 1.3),
    ((1024, 4096), QSD_EAGER, PAPER, 1 / 20),
    ((1024, 4096), QSD_COMPILED, PAPER, 1 / 20),
]


def two_gammas(x: Tensor) -> Tensor:
    """Follow the paper: p = a/(a + b) with two gamma draws, then a mask, then a size."""
    retain = 1 - RATE
    a = torch._standard_gamma(torch.full_like(x, ALPHA))
    b = torch._standard_gamma(torch.full_like(x, ALPHA * RATE / retain))
    p = (a / (a + b)).nan_to_num(retain)  # both can underflow
    return x * (torch.bernoulli(p) * p / retain**2)


def step(layer: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Callable[[], None]:
    x, upstream = torch.randn(shape, requires_grad=True), torch.randn(shape)

    def call() -> None:
        x.grad = None
        layer(x).backward(upstream)

    return call


def candidates() -> dict[str, Callable[[Tensor], Tensor]]:
    factor = torch.tensor(1.25)
    eager: dict[str, Callable[[Tensor], Tensor]] = {
        EAGER: nn.Dropout(RATE),
        QSD_EAGER: QSD(RATE, ALPHA),
        "dilute, eager": lambda x: dilute(x, RATE, ALPHA),
        "QSD with a key, eager": QSD(RATE, ALPHA, generator=quantal.key(0)),
        "QSD, p shared by the batch, eager": QSD(RATE, ALPHA, p_broadcast_dims=0),
        PAPER: two_gammas,
        "bare multiplication, eager": lambda x: x * factor,
    }
    compiled = {
        name.replace("eager", "compiled"): torch.compile(call, fullgraph=True)
        for name, call in eager.items()
        if call is not two_gammas  # its samplers break the graph
    }
    return eager | compiled


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    torch.set_num_threads(parser.parse_args().threads)
    torch._dynamo.config.recompile_limit = 64  # of lambdas that differ in their shapes only
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32,")
    print(f"forward and backward, rate {RATE}, alpha {ALPHA}\n")
    failed = 0
    for shape, rounds in SHAPES.items():
        calls = {name: step(layer, shape) for name, layer in candidates().items()}
        size = " × ".join(map(str, shape))
        timings = {}
        for baseline in (EAGER, COMPILED, PAPER):
            bars = [bar for bar in BARS if bar[0] == shape and bar[2] == baseline]
            if baseline == PAPER:
                chosen = {name: calls[name] for name in (PAPER, QSD_EAGER, QSD_COMPILED)}
            else:
                kind = baseline.split(", ")[1]
                chosen = {name: call for name, call in calls.items() if name.endswith(kind)}
                chosen.pop(PAPER, None)
            if not bars:
                continue
            few = min(rounds, 5) if baseline == PAPER else rounds
            timings = compare(chosen, baseline, rounds=few)
            print(table(f"{size}, against {baseline}", timings, torch.Size(shape).numel()))
            for _, name, _, most in bars:
                ratio = timings[name].ratio
                verdict = "met" if ratio <= most else "MISSED"
                failed += ratio > most
                print(f"- {name}: {ratio:.3f}, bar {most:g}: {verdict}")
            print()
    return failed


if __name__ == "__main__":
    keep_memory()
    sys.exit(main())
