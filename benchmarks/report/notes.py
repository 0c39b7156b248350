"""What the page says in words; every number on it comes from the results."""

from __future__ import annotations

__all__ = [
    "COST", "DEFAULT_MEMORY", "FRESH", "HOW", "KNEES", "LAW", "MEMORY", "NAMES", "OWN", "SCHEDULE",
    "TRAINING", "WHY",
]  # fmt: skip

NAMES = {
    "torch": "PyTorch",
    "jax": "JAX",
    "keras-tensorflow": "Keras on TensorFlow",
    "keras-jax": "Keras on JAX",
    "keras-torch": "Keras on PyTorch",
    "numpy": "NumPy",
}

OWN = {
    "torch": """\
*Own dropout* is `torch.nn.Dropout`, and *own spatial dropout* is `Dropout2d`. Compiled graphs are
made with `dynamic=True`, once for all sizes, at the largest size. The samplers break a graph, so
they are measured in eager mode only.""",
    "jax": """\
*Own dropout* is `flax.nnx.Dropout`, and *QSD* is `quantal.jax.nnx.QSD`, unless a name says
otherwise. A compiled step is one program, with the key as an argument. In an eager step, each
operation is a program of its own.""",
    "keras-tensorflow": """\
*Own dropout* is `keras.layers.Dropout(seed=1)`, and *own spatial dropout* is `SpatialDropout2D`. A
step is a `tf.function` (graph), one with `jit_compile=True` (XLA), or neither (eager).""",
    "keras-jax": """\
*Own dropout* is `keras.layers.Dropout(seed=1)`. A compiled step is one program; in an eager step,
each operation is a program of its own.""",
    "keras-torch": """\
*Own dropout* is `keras.layers.Dropout(seed=1)`. It draws with one of Keras's seed generators, as
QSD does; without a seed, both draw from torch's own stream. Compiled code uses `torch.compile`, as
Keras does for `jit_compile=True`; seed generators break the graph.""",
    "numpy": """\
Forward pass only. *Own dropout* is `x * ((rng.random(x.shape) < 0.8) * 1.25)`.""",
}

COST = """\
Each framework has two kinds of table: first nanoseconds per element, then ratios to the
framework's own dropout (for spatial layers, to its own spatial dropout). Below 1 means cheaper than
dropout. Sizes go from 2⁸ to 2²⁴ elements: 2¹⁴ is 64 × 256, 2²² is 1024 × 4096, and for the spatial
layers these are feature maps with as many elements. *QSD* draws from the framework's random stream,
with one coefficient for each unit."""

FRESH = """\
In a fresh process, in float32, 64 × 256. The first step of dropout runs first, so it includes what
the framework does only once. The first step of QSD includes making a table."""

HOW = """\
How it is measured: all candidates run in one process and take turns, in a new random order in every
round; each call waits for its device. Compilation and warm-up are not timed. The ratio of two
candidates is the median of their ratios within each round. Rounds are added until the standard
error of the ratio is below 1.5%, or time is up. A run does this in several fresh processes. There
are two runs, one after the other; the tables show the median of all processes. The *spread* is how
far the two runs differ; if it is above 10%, the ratio has a star. Threads are pinned to cores.
Unless a table says otherwise, the C library is set to keep freed memory. Rate and α are 0.2, and a
step is a forward and a backward pass."""

KNEES = {
    "torch": """\
The plot shows the cost per element, so a flat line is ideal. On the left the fixed cost of the
calls dominates, which more and more elements share. QSD makes more calls than dropout (see [where
the time goes](#where-the-time-goes)), so it is more expensive there. From 2¹⁵ elements on, torch
divides an operation between threads. On the right the arrays no longer fit into the caches, whose
sizes are marked: the bare multiplication becomes slower, while the others draw random numbers,
which costs more than memory access. Compiled code has one kernel for each pass, and the fixed cost
of entering it.""",
    "jax": """\
The plot shows the cost per element, so a flat line is ideal. On the left the fixed cost of entering
a compiled program, and of sharing its work with the second thread, dominates. XLA shares the work
of QSD at every size, because it counts the whole table as read, but that of dropout only from 2¹²
elements on, and that of the bare multiplication from 2¹⁶ on: these are the steps in their curves.
For larger arrays, random bits are the largest part; QSD needs a quarter of them. At 2²⁴ elements
each array has 64 MiB. The operating system provides such blocks afresh in every step, however the C
library is set, and clearing them makes all curves rise, also that of the bare multiplication. For
dropout the rise begins at 2²², because its temporary arrays are twice as large (see
[memory](#memory)) and lie in one block.""",
    "keras-tensorflow": """\
The plot shows the cost per element, so a flat line is ideal. On the left the fixed cost of a
function call of TensorFlow dominates; QSD makes three more, into the parts that XLA compiles. For
these parts sizes are rounded up by at most an eighth.""",
    "keras-jax": """\
The plot shows the cost per element, so a flat line is ideal. On the left the fixed cost of entering
a compiled program and of passing on the state of the seed generators dominates. The rest is as in
[JAX](#jax).""",
    "numpy": """\
The plot shows the cost per element, so a flat line is ideal. On the left the fixed cost of about
ten calls of NumPy dominates, and with a key that of thirty times as many. For larger arrays, random
bits are the largest part.""",
    "keras-torch": """\
The plot shows the cost per element, so a flat line is ideal. On the left the cost of Keras's own
bookkeeping in eager code dominates. It is the same for both layers, and larger than what either of
them does to a small array.""",
}

DEFAULT_MEMORY = """\
The following tables use the default settings of the C library (glibc). Large blocks of memory then
go back to the operating system after every step, and each page is cleared again when it is next
used. This adds the same cost to every candidate, so ratios move towards 1, most of all for cheap
candidates. A training loop that allocates other arrays in the same process will see something
between the two kinds of table."""

SCHEDULE = """\
A layer on 64 × 256 in float32, called eagerly (in JAX by a compiled function, with
`quantal.jax.law`); CPU time, medians of 80 steps. Each step has an alpha, or a rate, that no step
before it had, so that a table is made; the law is then kept for another step, with which it is
compared. At a lower rate there are more cells to fill."""

TRAINING = """\
The models and training steps of the examples, on one batch of noise of the right shape, compared
with the same model with the framework's dropout."""

MEMORY = """\
Bytes per element in float32, for 2²⁴ elements. *Kept* is what is stored for the backward pass. In
torch it is measured by saved-tensor hooks; in JAX it is the size of the arrays in what `jax.vjp`
returns, which includes the table of half a megabyte; in TensorFlow it is what the allocator counts
between the passes, without the output, with the tape outside of the function, where a graph or
program returns everything that its gradient needs. *Peak* is the largest amount used in a step,
besides the input and the upstream gradient. In torch it is the growth of the process's resident
memory, with a C library that returns free memory; in JAX it is what the compiler plans; in
TensorFlow it is what the allocator counts. On CPUs without AVX-512 TensorFlow counts nothing: there
the C library's count takes its place, and resident memory that of the peak. The output and the
gradient account for 8 of these bytes."""

LAW = """\
How far the draws of each implementation are from the exact law. All compute the coefficient
c = p·m/p̄², but obtain p in different ways: from `quantal`'s table, from the paper's listing with
two gamma draws in float32, or from the framework's own Beta sampler. (For NumPy this is the
reference in this package, in float64; TensorFlow has no Beta sampler, and Keras makes one from two
gamma draws.) Values that agree to six digits count as equal, so rounding is not blamed on anyone.
A distance is bold if a correct implementation would reach it in fewer than one of a hundred such
tables, by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart.

At small α, almost all of the probability of a gamma distribution lies below the smallest float32.
Both draws underflow to 0, and p is 0/0. NumPy and Keras on JAX then return NaN. Torch and
TensorFlow replace a draw of 0 by the smallest number, so that p is one half. In code compiled by
XLA, NaN times an empty mask is 0."""

_FEW_ROUNDS = """\
A step of the language models takes so long that there are few rounds. The model without any layer,
which does less work, varies as much around 1 (its column in [the table](#a-training-step)). Next
step: a machine without other work, and more rounds."""

# Why a bar is missed, if it is, and what could be tried: by suite and size, framework or value.
WHY: dict[tuple[str, int | str], str] = {
    ("torch", 2**14): """\
A step on so few elements consists of the fixed cost of its calls: compare the operations of QSD and
of dropout under [where the time goes](#where-the-time-goes). Next step: one operator in C++ for
draw, look-up, product and gradient, instead of a dozen calls from Python.""",
    ("torch", 2**22): """\
See the operations under [where the time goes](#where-the-time-goes). The gather (`index_select`) is
the largest: torch runs it on one thread, and the table has to come from the L2 cache, which a busy
machine slows down more than the arithmetic of dropout. Next step: one operator in C++ that draws,
looks up and multiplies while the index is in a register.""",
    ("jax", 2**22): """\
See the parts under [where the time goes](#where-the-time-goes): what is not random bits is memory
access. Next step: as an option, random bits from a generator that is cheaper than the twenty rounds
of Threefry; keys would then no longer be portable.""",
    ("jax", 2**14): """\
The fixed cost of entering a program matters here: see the parts under
[where the time goes](#where-the-time-goes). Next step: one fused loop, by a custom call.""",
    ("keras-tensorflow", 2**14): """\
QSD enters three compiled functions, dropout none: see *keys*, *bits* and *look-up* under
[where the time goes](#where-the-time-goes). Next step: one compiled function for all three.""",
    ("keras-tensorflow", 2**22): """\
See the parts under [where the time goes](#where-the-time-goes). Next step: a single compiled
function for bits and look-up, once XLA no longer computes a block again for each of its four
units.""",
    ("training", "torch"): """\
It is mnist-mlp, which has the shortest step. The fixed cost of three calls of the layer matters, as
at 64 × 256 above, and other arrays have driven the table of the law out of the cache by the time it
is used again. Next step: as said there.""",
    ("training", "jax"): _FEW_ROUNDS,
    ("training", "keras-tensorflow"): _FEW_ROUNDS,
    ("fixed", "seconds"): """\
On the compiled frameworks, most of the kit's time is compilation, because every check has its own
shape. Next step: checks that share shapes.""",
}
