"""The machine and the versions that a figure belongs to; no names, no paths."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any

import quantal

__all__ = ["describe", "environment", "pin"]

_PACKAGES = (
    "numpy", "scipy", "torch", "tensorflow-cpu", "tensorflow", "keras", "jax", "flax", "equinox",
    "optax", "transformers",
)  # fmt: skip

# What glibc does with memory that is free again.
_MEMORY: dict[str, dict[str, str]] = {
    "default": {},
    "kept": {
        "MALLOC_MMAP_THRESHOLD_": str(4 * 10**9),
        "MALLOC_TRIM_THRESHOLD_": str(4 * 10**9),
        "MALLOC_TOP_PAD_": str(2**28),
    },
    # Returned at once, so that what is resident is what is in use.
    "returned": {"MALLOC_MMAP_THRESHOLD_": str(2**16), "MALLOC_TRIM_THRESHOLD_": "0"},
}
_THREADS = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS",
)  # fmt: skip


def environment(threads: int, memory: str, device: str) -> dict[str, str]:
    """Return the environment of a process: with memory ``kept``, ``returned``, or by ``default``.

    On the device cpu no framework sees a GPU; on gpu each takes the one that it finds.

    By default glibc returns large blocks to the kernel, which then clears every page anew for the
    next call: 1 to 2 ns an element, the same for all candidates, and the noisiest part of all.
    """
    own = {name: value for name, value in os.environ.items() if name not in _MEMORY["kept"]}
    own |= _MEMORY[memory]
    own |= dict.fromkeys(_THREADS, str(threads))
    own |= {"TF_CPP_MIN_LOG_LEVEL": "3"}
    own |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"} if device == "cpu" else {}
    # Addresses and hashes differ from process to process: that is part of what repeats show.
    own.pop("PYTHONHASHSEED", None)
    return own


def pin(threads: int) -> None:
    """Keep this process on so many cores; frameworks that count the cores then see them alone."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise SystemExit(f"--threads: expected at most {len(allowed)}. Received: {threads}")
    os.sched_setaffinity(0, allowed[:threads])


def describe(threads: int, device: str) -> dict[str, Any]:
    """Return the header of a result."""
    return {
        "device": _accelerator() if device == "gpu" else "CPU",
        "processor": _processor(),
        "threads": threads,
        "cores": os.cpu_count(),
        "caches": _caches(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}, {' '.join(platform.libc_ver())}",
        "load at the start": round(os.getloadavg()[0], 2),
        "versions": _versions(),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return f"{line.split(':')[1].strip()}, {platform.machine()}"
    return platform.machine()


def _accelerator() -> str:
    if shutil.which("nvidia-smi") is None:
        return "GPU"
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    names = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.splitlines()
    return names[0] if names else "GPU"


def _caches() -> list[str]:
    found = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (
            (index / name).read_text().strip() for name in ("level", "type", "size")
        )
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return found


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "quantal": quantal.__version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
