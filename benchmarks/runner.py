"""Runs suites, each repeat in a process of its own."""

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
    """What a suite runs: ``measure(task)`` of a module, for each subject and repeat.

    ``subjects`` are frameworks; keras-jax is Keras on JAX. With ``default_memory`` a last process
    measures under glibc's own ways with memory.
    """

    module: str
    subjects: tuple[str, ...] = ("",)
    repeats: int = 3
    memory: str = "kept"
    default_memory: bool = False


_EVERY = ("torch", "jax", "keras-tensorflow", "keras-jax", "keras-torch")
_NATIVE = ("torch", "jax", "keras-tensorflow")

SUITES = {
    "torch": Suite("benchmarks.with_torch", default_memory=True),
    "jax": Suite("benchmarks.with_jax", default_memory=True),
    **{
        name: Suite("benchmarks.with_keras", (name,), default_memory=True)
        for name in _EVERY
        if name.startswith("keras")
    },
    "numpy": Suite("benchmarks.with_numpy"),
    "training": Suite("benchmarks.training", _NATIVE, repeats=2),
    "memory": Suite("benchmarks.memory", _NATIVE, repeats=1, memory="returned"),
    "fixed": Suite("benchmarks.fixed", repeats=1),
    "law": Suite("benchmarks.law", ("numpy", *_EVERY), repeats=1),
    "breakdown": Suite("benchmarks.breakdown", _NATIVE, repeats=1),
}


def run(names: Sequence[str], out: Path, *, quick: bool, threads: int) -> None:
    """Run suites and write their results to a folder."""
    failed = []
    for name in names:
        header, start = machine.describe(threads), time.monotonic()
        print(f"{name} …", end=" ", flush=True)
        try:
            rows = _rows(name, SUITES[name], quick, threads)
        except subprocess.CalledProcessError as error:
            print(f"failed\n{error.stderr}", flush=True)
            failed.append(name)
            continue
        header |= {
            "command": f"nox -s bench -- {name}",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "seconds": round(time.monotonic() - start),
            "repeats": 1 if quick else SUITES[name].repeats,
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


def _rows(name: str, suite: Suite, quick: bool, threads: int) -> list[Row]:
    tasks = [
        Task(subject, quick, suite.memory, repeat)
        for subject in suite.subjects
        for repeat in range(1 if quick else suite.repeats)
    ]
    if suite.default_memory:
        tasks += [Task(subject, quick, "default") for subject in suite.subjects]
    with tempfile.TemporaryDirectory() as folder:
        return combine([_child(name, task, threads, Path(folder)) for task in tasks])


def _child(name: str, task: Task, threads: int, folder: Path) -> list[Row]:
    to = folder / "rows.json"
    command = [sys.executable, "-m", "benchmarks", "measure", name]
    command += ["--threads", str(threads), "--to", str(to), "--task", json.dumps(asdict(task))]
    environment = machine.environment(threads, task.memory) | _backend(task.subject)
    # What the first repeat has compiled need not be compiled again by the others.
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
