"""Bytes an element that a layer keeps for its backward pass, and the most it needs at a time.

The most, in a forward and backward pass, on top of input and upstream gradient: in torch how far
the resident memory of the process rises, in JAX what its compiler plans for, in TensorFlow what its
allocator counts; where it counts nothing, which is on CPUs without AVX-512, as in torch. Output and
gradient are 8 of these bytes, in float32.

What is kept: torch tells it (saved-tensor hooks), and so does JAX (the arrays within the function
that ``jax.vjp`` returns); in TensorFlow it is what is allocated between the passes beside the
output, by its own count or by that of the C library.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import layers
from benchmarks.harness import Task
from benchmarks.store import Row

__all__ = ["from_c_library", "measure", "rise", "tensorflow_counts"]

CANDIDATES = (layers.DROPOUT, layers.QSD, layers.KEY, layers.SHARED_P, layers.MULTIPLY)
Measure = Callable[[Any, tuple[int, ...], str], float]
SIZE = 2**24  # large beside whatever else a process does


def measure(task: Task) -> list[Row]:
    """Measure in the framework that is the task's subject."""
    framework, saved, most = _FRAMEWORKS[task.subject.partition("-")[0]]()
    size = 2**20 if task.quick else SIZE  # TensorFlow does not count small blocks
    shape = layers.shape(size)
    rows = []
    for mode in framework.modes[: 1 if task.quick else None]:
        if (task.subject, mode) == ("jax", "eager"):
            continue  # a program for each operation, each with a plan of its own
        for one in framework.candidates(mode):
            if one.name in CANDIDATES[: 2 if task.quick else None]:
                what = {"framework": task.subject, "mode": mode, "candidate": one.name}
                values = {
                    "kept": saved(one.layer, shape, mode),
                    "peak": most(one.layer, shape, mode),
                }
                rows.append(Row(what, {name: value / size for name, value in values.items()}))
    return rows


def rise(call: Callable[[], Any]) -> float:
    """Return by how many bytes the resident memory rises in a call at most."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = _resident("VmRSS")
    call()
    return _resident("VmHWM") - before


class _MallocInfo(ctypes.Structure):
    """What glibc's ``mallinfo2`` returns."""

    _fields_ = [
        *((name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd")),
        *((name, ctypes.c_size_t) for name in ("usmblks", "fsmblks", "uordblks", "fordblks")),
        ("keepcost", ctypes.c_size_t),
    ]


def from_c_library() -> int:
    """Return how many bytes the process has from the C library, and has not given back."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _MallocInfo
    found = ask()
    return int(found.uordblks + found.hblkhd)


def tensorflow_counts() -> bool:
    """Return whether TensorFlow counts its memory: where it has oneDNN's allocator."""
    import tensorflow as tf

    try:
        tf.config.experimental.get_memory_info("CPU:0")
    except ValueError:
        return False
    return True


def _resident(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return float(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {name}")


def _torch() -> tuple[layers.Framework, Measure, Measure]:
    import torch

    from benchmarks.with_torch import PyTorch

    def saved(layer: Any, shape: tuple[int, ...], mode: str) -> float:
        x, kept = torch.ones(shape, requires_grad=True), {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            y = layer(x)
        y.backward(torch.ones_like(y))
        kept.pop(x.untyped_storage().data_ptr(), None)
        return float(sum(kept.values()))

    def most(layer: Any, shape: tuple[int, ...], mode: str) -> float:
        step = PyTorch().step(layer, shape, "float32", mode)
        for _ in range(2):
            step()
        return rise(step)

    return PyTorch(), saved, most


def _jax() -> tuple[layers.Framework, Measure, Measure]:
    import jax

    from benchmarks.with_jax import Jax

    def saved(layer: Any, shape: tuple[int, ...], mode: str) -> float:
        def forward(x: jax.Array, key: jax.Array) -> Any:
            return jax.vjp(lambda x: layer(x, key), x)

        _, pull = jax.jit(forward)(jax.numpy.ones(shape), jax.random.key(0))
        arrays = [leaf for leaf in jax.tree.leaves(pull) if isinstance(leaf, jax.Array)]
        return float(sum(array.nbytes for array in arrays))

    def most(layer: Any, shape: tuple[int, ...], mode: str) -> float:
        plan = Jax().program(layer, shape, "float32").memory_analysis()
        return plan.output_size_in_bytes + plan.temp_size_in_bytes - plan.alias_size_in_bytes

    return Jax(), saved, most


def _keras() -> tuple[layers.Framework, Measure, Measure]:
    import tensorflow as tf

    from benchmarks.with_keras import Keras

    counts = tensorflow_counts()

    def counted(when: str) -> int:
        return int(tf.config.experimental.get_memory_info("CPU:0")[when])

    def allocated() -> int:
        gc.collect()
        return counted("current") if counts else from_c_library()

    def saved(layer: Any, shape: tuple[int, ...], mode: str) -> float:
        x = tf.ones(shape)

        def run(x: Any) -> Any:
            return layer(x, training=True)

        if mode != "eager":
            run = tf.function(run, autograph=False, jit_compile=mode == "XLA")

        def forward() -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = run(x)
            return y, tape

        for _ in range(2):
            y, tape = forward()
            tape.gradient(y, x)
        del y, tape
        before = allocated()
        kept = forward()
        after = allocated()
        del kept
        return float(after - before - 4 * x.shape.num_elements())

    def most(layer: Any, shape: tuple[int, ...], mode: str) -> float:
        step = Keras().step(layer, shape, "float32", mode)
        for _ in range(2):
            step()
        if not counts:
            return rise(step)
        before = allocated()
        tf.config.experimental.reset_memory_stats("CPU:0")
        step()
        return float(counted("peak") - before)

    return Keras(), saved, most


_FRAMEWORKS = {"torch": _torch, "jax": _jax, "keras": _keras}
