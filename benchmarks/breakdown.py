"""Where the time of a step goes, for the pages to say why a bar is missed.

In torch by its profiler: the time in each operation. In JAX and TensorFlow, whose compilers leave
no operations to look at, by programs that do more and more of the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import quantal
from benchmarks import layers
from benchmarks.harness import Task, timed
from benchmarks.layers import ALPHA, RATE
from benchmarks.store import Row

__all__ = ["measure"]

WHOLE = "QSD: forward and backward"
OWN = "own dropout: forward and backward"


def measure(task: Task) -> list[Row]:
    """Take steps apart in the framework that is the task's subject."""
    rows: list[Row] = []
    for size in layers.CHOSEN[:1] if task.quick else layers.CHOSEN:
        if task.subject == "torch":
            rows += _operations(size, 2 if task.quick else 30)
            continue
        parts = (_jax if task.subject == "jax" else _tensorflow)(layers.shape(size))
        what = {"framework": task.subject, "group": "parts", "size": size}
        rows += timed(what, parts, dict.fromkeys(parts, WHOLE), task.rounds(3))
    return rows


def _operations(size: int, calls: int) -> list[Row]:
    """Return the operations that take most of a step of eager torch."""
    from torch.profiler import ProfilerActivity, profile

    from benchmarks.with_torch import PyTorch

    rows = []
    wanted = (layers.DROPOUT, layers.QSD, layers.KEY, layers.SHARED_P)
    for one in PyTorch().candidates("eager"):
        if one.name not in wanted:
            continue
        step = PyTorch().step(one.layer, layers.shape(size), "float32", "eager")
        for _ in range(5):
            step()
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            for _ in range(calls):
                step()
        found = [
            (e.self_cpu_time_total / calls, e.count / calls, e.key) for e in seen.key_averages()
        ]
        total = sum(us for us, _, _ in found)
        for us, count, name in sorted(found, reverse=True):
            if us > 0.03 * total:
                what = {"framework": "torch", "group": "operations", "size": size}
                what |= {"candidate": one.name, "operation": name}
                rows.append(Row(what, {"us": us, "share": us / total, "calls": count}))
    return rows


def _jax(shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    import jax

    from benchmarks.with_jax import Jax
    from quantal.jax import _coefficients as drawing
    from quantal.jax._coefficients import UnitArrays, table_on_device

    made, law, key = Jax(), quantal.Dilution(RATE, ALPHA), jax.random.key(0)

    def program(function: Callable[..., Any]) -> Callable[[], object]:
        compiled = jax.jit(function).lower(key).compile()
        return lambda: jax.block_until_ready(compiled(key))

    def step(layer: Any) -> Callable[[], object]:
        return made.step(layer, shape, "float32", "compiled")

    return {
        "no layer: one multiply, forward and backward": step(lambda x, key: x * 1.25),
        "QSD: bits": program(lambda key: table_on_device(UnitArrays, law).draw(key, shape, None)),
        "QSD: bits and look-up": program(lambda key: drawing.coefficients(law, shape, None, key)),
        WHOLE: step(made.qsd()),
        "own dropout: mask": program(lambda key: jax.random.bernoulli(key, 1 - RATE, shape)),
        OWN: step(made.dropout()),
    }


def _tensorflow(shape: tuple[int, ...]) -> dict[str, Callable[[], object]]:
    import tensorflow as tf

    from benchmarks.with_keras import Keras, Multiply
    from quantal.tensorflow import _functional as functional
    from quantal.tensorflow import _random_bits as bits

    made, law, seed = Keras(), quantal.Dilution(RATE, ALPHA), tf.constant([1, 2])
    table = functional.constants(law, False, seed.device)

    def program(function: Callable[..., Any]) -> Callable[[], object]:
        graph = tf.function(function, autograph=False)
        return lambda: graph(seed)

    def step(layer: Any) -> Callable[[], object]:
        return made.step(layer, shape, "float32", "graph")

    def cells(seed: Any) -> Any:
        return bits.by_fours(lambda blocks: bits.cells(bits.from_seed(seed).own, blocks), shape)

    return {
        "no layer: one multiply, forward and backward": step(Multiply()),
        "QSD: keys": program(lambda seed: tuple(bits.from_seed(seed))),
        "QSD: bits": program(cells),
        "QSD: bits and look-up": program(
            lambda seed: functional.coefficients(table, shape, None, bits.from_seed(seed))
        ),
        WHOLE: step(made.qsd()),
        "own dropout: random numbers": program(
            lambda seed: tf.random.stateless_uniform(shape, seed)
        ),
        OWN: step(made.dropout()),
    }
