"""Where TensorFlow would run each operation of a step on a GPU, asked without one.

The builds of TensorFlow with GPU support can be asked for their kernels also where there is no GPU.
What this project needs to know of them stands in ``gpu_kernels.json``, made by

    pip install tensorflow==2.21.0 && python tests/with_keras/gpu_placement.py

in an environment with that build: for every kind of operation that a step has outside of functions
compiled by XLA, the kernel that a GPU would use, and which of its operands this keeps in the
memory of the host; null if it has no kernel, and would be run by the host.
"""

from __future__ import annotations

import itertools
import json
from functools import partial
from pathlib import Path

import tensorflow as tf

import quantal
from quantal.tensorflow import dilute

LIST = Path(__file__).with_name("gpu_kernels.json")
SMALL = 64  # elements: more than the shape of any tensor has


def step(dilute, x):
    """Return a dilution and its gradient."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dilute(x)
    return y, tape.gradient(y, x)


SHAPES = {
    "static": (1024, 4095),
    "unknown batch": (None, 4095),
    "unknown sizes": (None, None),
    "unknown rank": None,
}
SOURCES = {
    "global stream": lambda: None,
    "generator": lambda: tf.random.Generator.from_seed(1),
    "threefry": lambda: tf.random.Generator.from_seed(1, "threefry"),
    "any algorithm": lambda: tf.random.Generator.from_seed(1, "auto_select"),
    "seed": lambda: (1, 2),
    "key": lambda: quantal.key(0),
}
GRANULARITIES = {
    "own": {},
    "shared": {"broadcast_dims": 1},
    "shared probability": {"p_broadcast_dims": 0},
}


def steps():
    """Yield every kind of step: its name, a function and the signature of its input."""
    from quantal.keras import QSD

    for shape, granularity in itertools.product(SHAPES, GRANULARITIES):
        sizes, dims = SHAPES[shape], GRANULARITIES[granularity]
        if sizes is None and dims:
            continue  # axes can be named only where their number is known
        found = {
            source: partial(dilute, rate=0.2, alpha=0.2, rng=make(), **dims)
            for source, make in SOURCES.items()
        }
        if sizes is not None:
            for seed in (1, quantal.key(0)):
                found[f"keras, {seed}"] = partial(QSD(0.2, 0.2, seed=seed, **dims), training=True)
        for source, draw in found.items():
            name = f"{shape}, {granularity}, {source}"
            yield name, partial(step, draw), tf.TensorSpec(sizes, tf.float32)
        for dtype in ("float16", "bfloat16", "float64"):
            name = f"{shape}, {granularity}, {dtype}"
            yield name, partial(step, found["key"]), tf.TensorSpec(sizes, dtype)
    spec = tf.TensorSpec((None, 4095))
    for kind in (tf.uint8, tf.int16, tf.uint16, tf.uint32, tf.uint64):
        draw = partial(dilute, rate=0.2, alpha=0.2, rng=tf.constant([1, 2], kind))
        yield f"a seed of {kind.name}", partial(step, draw), spec
    for kind in (tf.int32, tf.int64):
        draw = partial(dilute, rate=0.2, alpha=0.2, rng=tf.Variable([1, 2], dtype=kind))
        yield f"a variable of {kind.name}", partial(step, draw), spec
    yield "rate 1", partial(step, partial(dilute, rate=1.0, alpha=0.2)), spec
    for policy in ("mixed_float16", "mixed_bfloat16"):
        layer = QSD(0.2, 0.2, seed=1, dtype=policy)
        yield policy, partial(step, partial(layer, training=True)), spec


# What goes through the host, and why: the judge must see it.
FAULTS = {
    "a range on the host": (
        lambda x: x * tf.cast(tf.range(tf.size(x)), x.dtype),
        "Range: a large tensor on the host",
    ),
    "no kernel": (
        lambda x: tf.cast(tf.reverse(tf.bitcast(x, tf.uint32), [0]), x.dtype),
        "ReverseV2: no GPU kernel",
    ),
    "a wait": (
        lambda x: x * tf.cast(tf.unstack(tf.cast(x, tf.int64), num=2)[0], x.dtype),
        "Unpack: waits for the device",
    ),
    "sizes from the device": (
        lambda x: tf.reshape(x, [tf.cast(tf.math.log(tf.cast(tf.size(x), x.dtype)), tf.int32), -1]),
        "Pack: waits for the device",
    ),
}


def trace(function, spec):
    """Return the graph of a function."""
    return tf.function(function, autograph=False).get_concrete_function(spec).graph


def operations(graph):
    """Yield the operations of a graph that XLA does not compile, also within its functions."""
    for op in graph.get_operations():
        yield op
        if not compiled(op):
            for name in _functions(op):
                yield from operations(graph._get_function(name).graph)


def compiled(op):
    """Return whether an operation is a call of a function that XLA compiles."""
    return "Call" in op.type and bool(op.node_def.attr["_XlaMustCompile"].b)


def _functions(op):
    return [attr.func.name for attr in op.node_def.attr.values() if attr.HasField("func")]


def signature(op):
    """Return an operation and its types, as the list of kernels names it."""
    types = {
        name: tf.as_dtype(attr.type).name
        for name, attr in op.node_def.attr.items()
        if attr.HasField("type")
    }
    return f"{op.type}({', '.join(f'{k}={types[k]}' for k in sorted(types))})"


def judge(graph, kernels):
    """Return what runs on the host or waits for the device, one line for each operation."""
    host, found = {}, []
    for op in operations(graph):
        if op.type in ("Placeholder", "NoOp"):
            # So functions pass handles of variables and, by convention, 32-bit integers.
            kept = (tf.int32, tf.resource)
            host.update({tensor.ref(): tensor.dtype in kept for tensor in op.outputs})
            continue
        if compiled(op):
            # Its integers of 32 bits are sizes, which the compiler needs to know.
            inputs, outputs = [tensor.dtype == tf.int32 for tensor in op.inputs], []
        elif (kernel := kernels.get(signature(op), "unknown")) == "unknown":
            found.append(f"{signature(op)}: not in {LIST.name}, which gpu_placement.py makes")
            continue
        elif kernel is None:
            found.append(f"{op.type}: no GPU kernel ({signature(op)})")
            continue
        else:
            inputs = _in_host_memory(op, op.op_def.input_arg, kernel["host"])
            outputs = _in_host_memory(op, op.op_def.output_arg, kernel["host"])
        outputs = outputs or [False] * len(op.outputs)
        if op.type == "Const" and "CPU" in op.device:
            outputs = [True]
        host.update(zip((t.ref() for t in op.outputs), outputs, strict=True))
        for tensor, on_host in [*zip(op.inputs, inputs, strict=True)]:
            if on_host and not host.get(tensor.ref(), True):  # of others it was told why not
                found.append(f"{op.type}: waits for the device for {tensor.name}")
        for tensor, on_host in [*zip(op.inputs, inputs, strict=True),
                                *zip(op.outputs, outputs, strict=True)]:  # fmt: skip
            if on_host and not _small(tensor):
                found.append(f"{op.type}: a large tensor on the host, {tensor.name}")
    return found


def _in_host_memory(op, arguments, names):
    """Return for each tensor whether the kernel wants it in the memory of the host."""
    found = []
    for argument in arguments:
        count = 1
        if argument.number_attr:
            count = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        found += [argument.name in names] * count
    return found


def _small(tensor):
    """Return whether a tensor has few elements, whatever the sizes of the input."""
    if (size := tensor.shape.num_elements()) is not None:
        return size <= SMALL
    if tensor.op.type == "Shape":
        return True
    # Of unknown length: as long as what it is made of.
    grows = ("Range", "Fill", "Tile", "BroadcastTo", "Placeholder")
    return tensor.op.type not in grows and all(_small(each) for each in tensor.op.inputs)


def registered(op):
    """Return the kernel that a GPU would use, from the registry of this TensorFlow."""
    from tensorflow.python.framework import kernels

    found = []
    for kernel in kernels.get_registered_kernels_for_op(op.type).kernel:
        if kernel.device_type not in ("GPU", "DEFAULT"):
            continue
        if all(
            op.node_def.attr[c.name].type in c.allowed_values.list.type for c in kernel.constraint
        ):
            found.append({"device": kernel.device_type, "host": sorted(kernel.host_memory_arg)})
    # One for GPUs goes before one for any device.
    return min(found, key=lambda kernel: kernel["device"] != "GPU", default=None)


def main():
    """Write the list."""
    if not tf.test.is_built_with_cuda():
        raise SystemExit("this TensorFlow has no kernels for GPUs: pip install tensorflow==2.21.0")
    known = {}
    faults = [(name, fault, tf.TensorSpec((None,))) for name, (fault, _) in FAULTS.items()]
    for _, function, spec in (*steps(), *faults):
        for op in operations(trace(function, spec)):
            if not compiled(op) and op.type not in ("Placeholder", "NoOp"):
                known[signature(op)] = registered(op)
    lines = [f"  {json.dumps(name)}: {json.dumps(known[name])}" for name in sorted(known)]
    made = f'"tensorflow": "{tf.__version__}",\n"kernels": {{\n' + ",\n".join(lines) + "\n}"
    LIST.write_text("{\n" + made + "\n}\n")
    print(f"{len(known)} kinds of operations in {LIST}")


if __name__ == "__main__":
    main()
