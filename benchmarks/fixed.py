"""Costs that do not grow with the data: imports, first calls, tables, keys, convert, the kit."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import quantal
from benchmarks.harness import Task
from benchmarks.store import Row
from quantal import table as tables
from quantal.conformance.adapters import installed

__all__ = ["measure"]

# Every rate and α with which the paper trains, and the ends of its sweeps.
PAPER = [(r, a) for r in (0.05, 0.1, 0.2, 0.3, 0.5) for a in (0.2, 0.5, 1.0, 2.0, 5.0)]
PAPER += [(0.6, 10.0)]

# What is imported first, what on top of it, and where its first call is found.
FRESH = {
    "quantal": ("numpy,scipy.special", "quantal", ""),
    "quantal.torch": ("torch", "quantal.torch", "benchmarks.with_torch:PyTorch"),
    "quantal.jax.nnx": ("jax,flax.nnx", "quantal.jax.nnx", "benchmarks.with_jax:Jax"),
    "quantal.keras": ("tensorflow,keras", "quantal.keras", "benchmarks.with_keras:Keras"),
}


def measure(task: Task) -> list[Row]:
    """Measure all of them."""
    return [*_fresh(task), *_tables(task), *_keys(), *_convert(task), *_conformance(task)]


def _fresh(task: Task) -> list[Row]:
    rows = []
    environment = os.environ | {"KERAS_BACKEND": "tensorflow"}
    for name, arguments in list(FRESH.items())[: 1 if task.quick else None]:
        command = [sys.executable, "-m", "benchmarks.fresh", *arguments]
        runs = [
            json.loads(subprocess.check_output(command, env=environment, stderr=subprocess.DEVNULL))
            for _ in range(1 if task.quick else 3)
        ]
        what = {"group": "fresh", "name": name, "after": arguments[0].replace(",", ", ")}
        rows.append(
            Row(what, {kind: statistics.median(run[kind] for run in runs) for kind in runs[0]})
        )
    return rows


def _tables(task: Task) -> list[Row]:
    rows = []
    settings = PAPER[::20] if task.quick else PAPER
    for kind, made in (("table", tables.table), ("shared_table", tables.shared_table)):
        make = vars(made)["__wrapped__"]  # without its cache
        taken = {law: _median(partial(make, quantal.Dilution(*law)), 5) for law in settings}
        slowest = max(taken, key=lambda law: taken[law])
        values = {"seconds": statistics.median(taken.values()), "slowest": taken[slowest]}
        what = {"group": "table", "name": kind, "rate": slowest[0], "alpha": slowest[1]}
        rows.append(Row(what, values))
    return rows


def _keys() -> list[Row]:
    key = quantal.key(0)
    calls: dict[str, Callable[[], object]] = {
        "key.fold_in(1)": lambda: key.fold_in(1),
        "key.split(3)": lambda: key.split(3),
        "key.indices((64, 256))": lambda: key.indices((64, 256)),
    }
    return [
        Row({"group": "key", "name": name}, {"seconds": _median(call, 100)})
        for name, call in calls.items()
    ]


def _convert(task: Task) -> list[Row]:
    # BERT sees no images; a torchvision that does not fit torch would keep it from loading.
    sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
    import transformers

    from quantal.torch import convert, revert, sites

    config = transformers.BertConfig()  # 12 layers of 768 units
    if task.quick:
        config = transformers.BertConfig(hidden_size=12, intermediate_size=12, vocab_size=12)
    model = transformers.BertModel(config)
    count = len(list(sites(model)))
    taken: dict[str, list[float]] = {"sites": [], "convert": [], "revert": []}
    for _ in range(3):
        taken["sites"].append(_time(lambda: sites(model)))
        taken["convert"].append(_time(lambda: convert(model, 0.2)))
        taken["revert"].append(_time(lambda: revert(model)))
    return [
        Row(
            {"group": "convert", "name": name, "sites": count},
            {"seconds": statistics.median(times)},
        )
        for name, times in taken.items()
    ]


def _conformance(task: Task) -> list[Row]:
    rows = []
    for adapter in ("numpy",) if task.quick else installed():
        command = [sys.executable, "-m", "quantal.conformance", adapter, "--format", "json"]
        command += ["--quick"] * task.quick
        start, before = time.perf_counter(), _cpu()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        values = {"seconds": time.perf_counter() - start, "cpu": _cpu() - before}
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        (report,) = json.loads(done.stdout)
        passed = [result["status"] == "passed" for result in report["results"]]
        values |= {"passed": sum(passed), "checks": len(passed)}
        rows.append(Row({"group": "conformance", "name": adapter}, values))
    return rows


def _cpu() -> float:
    """Return the CPU seconds of all processes that this one has started and seen end."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _time(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _median(call: Callable[[], object], rounds: int) -> float:
    return statistics.median(_time(call) for _ in range(rounds))
