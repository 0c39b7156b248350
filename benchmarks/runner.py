"""Runs suites, in processes of their own."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import machine
from benchmarks.harness import Task
from benchmarks.store import Result, Row, combine

__all__ = ["SUITES", "Suite", "measure", "run"]

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Suite:
    """What a suite runs: ``measure(task)`` of a module, for each subject, in some processes.

    ``subjects`` are frameworks; keras-jax is Keras on JAX. All of it is done again in each of the
    ``runs``, one after the other. With ``default_memory`` a last process of a run measures under
    glibc's own ways with memory. ``on_gpu``: it can be asked for on a GPU.
    """

    module: str
    subjects: tuple[str, ...] = ("",)
    runs: int = 2
    processes: int = 2
    memory: str = "kept"
    default_memory: bool = False
    on_gpu: bool = False


_EVERY = ("torch", "jax", "keras-tensorflow", "keras-jax", "keras-torch")
_NATIVE = ("torch", "jax", "keras-tensorflow")

SUITES = {
    "torch": Suite("benchmarks.with_torch", default_memory=True, on_gpu=True),
    "jax": Suite("benchmarks.with_jax", default_memory=True, on_gpu=True),
    **{
        name: Suite("benchmarks.with_keras", (name,), default_memory=True, on_gpu=True)
        for name in _EVERY
        if name.startswith("keras")
    },
    "numpy": Suite("benchmarks.with_numpy"),
    "training": Suite("benchmarks.training", _NATIVE, processes=1, on_gpu=True),
    "memory": Suite("benchmarks.memory", _NATIVE, runs=1, processes=1, memory="returned"),
    "fixed": Suite("benchmarks.fixed", runs=1, processes=1),
    "schedule": Suite("benchmarks.schedule", _EVERY, runs=1, processes=1, memory="default"),
    "law": Suite("benchmarks.law", ("numpy", *_EVERY), runs=1, processes=1),
    "breakdown": Suite("benchmarks.breakdown", _NATIVE, runs=1, processes=1),
}


def run(names: Sequence[str], out: Path, *, quick: bool, threads: int, device: str) -> None:
    """Run suites and write their results to a folder."""
    failed = []
    for name in names:
        header, start = machine.describe(threads, device), time.monotonic()
        print(f"{name} …", end=" ", flush=True)
        try:
            rows = _rows(name, SUITES[name], quick, threads, device)
        except subprocess.CalledProcessError as error:
            print(f"failed\n{error.stderr}", flush=True)
            failed.append(name)
            continue
        header |= {
            "command": f"nox -s bench -- {name}" + (" --device gpu" if device == "gpu" else ""),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "seconds": round(time.monotonic() - start),
            "runs": 1 if quick else SUITES[name].runs,
            "processes": 1 if quick else SUITES[name].processes,
            "quick": quick,
        }
        Result(name, header, rows).write(out)
        print(f"{header['seconds']} s", flush=True)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def measure(name: str, task: Task, threads: int, to: Path) -> None:
    """Measure in this process: pinned first, then with its frameworks imported."""
    machine.pin(threads)
    rows = importlib.import_module(SUITES[name].module).measure(task)
    to.write_text(json.dumps([asdict(row) for row in rows]))


def _rows(name: str, suite: Suite, quick: bool, threads: int, device: str) -> list[Row]:
    tasks = [
        Task(subject, quick, memory, device, number, process)
        for number in range(1 if quick else suite.runs)
        for subject in suite.subjects
        for memory in ((suite.memory, "default") if suite.default_memory else (suite.memory,))
        for process in range(1 if quick or memory != suite.memory else suite.processes)
    ]
    with tempfile.TemporaryDirectory() as folder:
        return combine((task.run, _child(name, task, threads, Path(folder))) for task in tasks)


def _child(name: str, task: Task, threads: int, folder: Path) -> list[Row]:
    to = folder / "rows.json"
    command = [sys.executable, "-m", "benchmarks", "measure", name]
    command += ["--threads", str(threads), "--to", str(to), "--task", json.dumps(asdict(task))]
    environment = machine.environment(threads, task.memory, task.device) | _backend(task.subject)
    # What the first process has compiled need not be compiled again by the others.
    environment |= {
        "JAX_COMPILATION_CACHE_DIR": str(folder / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
    }
    subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True, text=True)
    return [Row(**row) for row in json.loads(to.read_text())]


def _backend(subject: str) -> dict[str, str]:
    """Return what chooses the backend of Keras."""
    framework, _, backend = subject.partition("-")
    return {"KERAS_BACKEND": backend} if framework == "keras" else {}
