"""Fixed costs of the core: making a table, importing the package, drawing with NumPy.

Run: python benchmarks/bench_core.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import numpy as np
from harness import compare, table

import quantal
from quantal import table as tables

# Every rate and α with which the paper trains, and the ends of its sweeps.
PAPER = [(r, a) for r in (0.05, 0.1, 0.2, 0.3, 0.5) for a in (0.2, 0.5, 1.0, 2.0, 5.0)]
PAPER += [(0.6, 10.0)]


def table_build() -> None:
    print("### Making a table (bar: 0.1 s at the paper's settings)\n")
    print("| setting | ms |\n|---|---|")
    taken = {}
    for rate, alpha in PAPER:
        runs = []
        for _ in range(7):
            start = time.perf_counter()
            tables.cell_means(quantal.Dilution(rate, alpha))
            runs.append(time.perf_counter() - start)
        taken[rate, alpha] = statistics.median(runs) * 1e3
    slowest = max(taken, key=taken.__getitem__)
    print(f"| median of {len(PAPER)} settings | {statistics.median(taken.values()):.1f} |")
    print(f"| slowest: rate {slowest[0]}, alpha {slowest[1]} | {taken[slowest]:.1f} |\n")


def import_time(rounds: int = 15) -> None:
    code = """
import time
start = time.perf_counter()
import numpy, scipy.special
middle = time.perf_counter()
import quantal
print(middle - start, time.perf_counter() - middle)
"""
    runs = [subprocess.check_output([sys.executable, "-c", code]).split() for _ in range(rounds)]
    base, beyond = (statistics.median(float(run[i]) for run in runs) * 1e3 for i in (0, 1))
    print("### Import time (bar: 0.3 s beyond NumPy and scipy.special)\n")
    print("| import | ms |\n|---|---|")
    print(f"| numpy, scipy.special | {base:.0f} |")
    print(f"| quantal, beyond these | {beyond:.0f} |\n")


def numpy_draw() -> None:
    x = np.ones((1024, 4096), np.float32)
    rng, key = np.random.default_rng(0), quantal.key(0)
    keep = np.float32(1 / 0.8)
    candidates = {
        "dropout: rng.random(x.shape) < 0.8": lambda: x * (rng.random(x.shape) < 0.8) * keep,
        "dilute, native": lambda: quantal.dilute(x, 0.2, 0.2, rng=rng),
        "dilute, portable key": lambda: quantal.dilute(x, 0.2, 0.2, rng=key),
        "the paper's recipe": lambda: x * quantal.reference.draw(
            quantal.Dilution(0.2, 0.2), x.shape, rng
        ).c,
    }  # fmt: skip
    timings = compare(candidates, "dropout: rng.random(x.shape) < 0.8", rounds=9)
    print(table("NumPy, forward, 1024 × 4096 float32", timings, x.size))


if __name__ == "__main__":
    import quantal.reference

    table_build()
    import_time()
    numpy_draw()
