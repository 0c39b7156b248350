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
The own dropout is `torch.nn.Dropout`, the spatial one `Dropout2d`; compiled graphs are made with
`dynamic=True`, once for all sizes, at the largest of them. The samplers break a graph, so they are
eager only.""",
    "jax": """\
The own dropout is `flax.nnx.Dropout`, and QSD is `quantal.jax.nnx.QSD`, unless a name says
otherwise. A step is one compiled program with the key as an argument; eager, each operation of it
is a program of its own.""",
    "keras-tensorflow": """\
The own dropout is `keras.layers.Dropout(seed=1)`, the spatial one `SpatialDropout2D`. A step is a
`tf.function` (graph), one with `jit_compile=True` (XLA), or neither (eager).""",
    "keras-jax": """\
The own dropout is `keras.layers.Dropout(seed=1)`, in one compiled program; eager, each operation is
a program of its own.""",
    "keras-torch": """\
The own dropout is `keras.layers.Dropout(seed=1)`, which draws by a seed generator of Keras, as QSD
does; without a seed both take torch's own stream. Compiled is by `torch.compile`, as Keras does for
`jit_compile=True`; seed generators break the graph.""",
    "numpy": "Forward only; the own dropout is `x * ((rng.random(x.shape) < 0.8) * 1.25)`.",
}

COST = """\
Over sizes from 2⁸ to 2²⁴ elements (2¹⁴ are 64 × 256, 2²² are 1024 × 4096; feature maps of the same
size for the spatial layers): first nanoseconds an element, then ratios to the own dropout, of
spatial layers to the own spatial one. *QSD* draws from the framework's stream, with a coefficient
for each unit."""

FRESH = """\
In a fresh process, in float32, 64 × 256. The first step of dropout comes first, and pays for what
the framework does only once; that of QSD includes making a table."""

HOW = """\
How it is measured: in one process all candidates take turns, in a new random order in every round,
each call waiting for its device; compilation and warm-up come before the clock. A ratio is the
median over the rounds of the ratios within a round; rounds go on until its standard error is below
1.5%, or time is up. A run does so in several fresh processes, and takes their median; there are two
runs, one after the other. Shown is the median of all processes, and the spread is how far the two
runs differ: above 10%, the ratio has a star. Threads are pinned to the cores. The C library is made
to keep its memory, unless a table says otherwise. Rate 0.2, α 0.2; a step is forward and
backward."""

KNEES = {
    "torch": """\
Flat is right. On the left the cost is that of the calls alone, shared by ever more elements: QSD
makes more of them than dropout (see [where the time goes](#where-the-time-goes)), so it is the
dearer one there. From 2¹⁵ elements on torch shares an operation between the threads. On the right
the arrays leave the caches, whose sizes are marked: the bare multiplication rises, while the others
draw random numbers, which costs more than memory does. Compiled code has one kernel for each pass,
and the fixed cost of entering it.""",
    "jax": """\
Flat is right. On the left is the price of entering a compiled program, and of sharing its work with
the second thread. XLA does so for QSD at every size, as it counts the whole table as read, but for
dropout only from 2¹² elements on and for the bare multiplication from 2¹⁶, which are the steps in
their curves. Then random bits are the largest part; QSD needs a quarter of them. At 2²⁴ each array
has 64 MiB, and such blocks come anew from the kernel in every step, however the C library is set:
the rise is that of clearing them, and the bare multiplication shows it too. For dropout it begins
at 2²², as its temporary arrays are twice as large (see [memory](#memory)) and lie in one block.""",
    "keras-tensorflow": """\
Flat is right. On the left is the price of a function call of TensorFlow, and in QSD of three more,
into the parts that XLA compiles. Sizes are rounded up by at most an eighth for these.""",
    "keras-jax": """\
Flat is right. On the left is the price of entering a compiled program and of handing on the state
of the seed generators. The rest is as in [JAX](#jax).""",
    "numpy": """\
Flat is right. On the left is the price of some ten calls of NumPy, of a key thirty times as many.
From there on random bits are the largest part.""",
    "keras-torch": """\
Flat is right. On the left is the price of Keras's own bookkeeping in eager code: the same for both
layers, and larger than what either of them does to a small array.""",
}

DEFAULT_MEMORY = """\
With glibc's own ways, large blocks go back to the kernel after every step, which clears each page
anew: the same cost for every candidate, so ratios move towards 1, most of all where the rest is
cheap. A training loop that allocates its other arrays in the same process sees something between
the two tables."""

SCHEDULE = """\
A layer on 64 × 256 in float32, called eagerly (in JAX by a compiled function, with
`quantal.jax.law`); CPU time, medians of 80 steps. Each step has an alpha, or a rate, that no step
before it had, so that a table is made; the law is then kept for another step, with which it is
compared. At a lower rate there are more cells to fill."""

TRAINING = """\
The examples' own models and steps, on one batch of noise of the right shape, against the same
model with the framework's dropout."""

MEMORY = """\
Bytes an element in float32, of 2²⁴. *Kept*: for the backward pass; torch tells it by saved-tensor
hooks, JAX by the arrays in what `jax.vjp` returns, its table of half a megabyte included; in
TensorFlow it is what its allocator counts between the passes beside the output, with the tape
outside of the function, where a graph or program hands over all that its gradient needs. *Peak*:
the most in a step, beyond the input and the upstream gradient: in torch by how much the resident
memory of the process rises, with a C library that returns what is free; in JAX what the compiler
plans for; in TensorFlow what its allocator counts. 8 of these bytes are the output and the
gradient."""

LAW = """\
What each implementation really draws, against the exact law: the coefficient c = p·m/p̄² with p by
`quantal`'s table, by the paper's listing with two gamma draws in float32, and by the framework's
own Beta sampler (NumPy's is that of the reference in this package, in float64; TensorFlow has
none, and Keras makes one of two gammas). Values that agree to six digits count as equal, so that
nobody is blamed for rounding. A distance is bold where a right law would not be so far in one of a
hundred such tables, by the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart.

At small α nearly all of a gamma's mass lies below the smallest float32: both draws underflow, and
p is 0/0. NumPy and Keras on JAX then give NaN; torch and TensorFlow replace a zero draw by the
smallest number, which makes p one half; compiled by XLA, NaN times an empty mask is 0."""

_FEW_ROUNDS = """\
A step of the language models is so long that there are few rounds; the model with no layer at all,
which does less, scatters as much around 1 (its column in [the table](#a-training-step)). Next: a
machine without neighbours, and more rounds."""

# Why a bar is missed, if it is, and what could be tried: by suite and size, framework or value.
WHY: dict[tuple[str, int | str], str] = {
    ("torch", 2**14): """\
A step of so few elements is the fixed cost of its calls: see the operations of QSD beside those of
dropout under [where the time goes](#where-the-time-goes). Next: draw, look-up and product in one
operator in C++, with its gradient, instead of a dozen calls from Python.""",
    ("torch", 2**22): """\
See the operations under [where the time goes](#where-the-time-goes): the gather (`index_select`) is
the largest, as torch does it on one thread and the table has to come from L2, which a busy machine
slows down more than the arithmetic of dropout. Next: one operator in C++ that draws, looks up and
multiplies while the index is in a register.""",
    ("jax", 2**22): """\
See the parts under [where the time goes](#where-the-time-goes): what is not random bits is memory.
Next: bits from a generator with less work in a block than Threefry's twenty rounds, as an option:
keys would no longer be portable.""",
    ("jax", 2**14): """\
The fixed cost of entering a program counts here: see the parts under
[where the time goes](#where-the-time-goes). Next: one fused loop, by a custom call.""",
    ("keras-tensorflow", 2**14): """\
Three compiled functions are entered where dropout enters none: see *keys*, *bits* and *look-up*
under [where the time goes](#where-the-time-goes). Next: a single compiled function for keys, bits
and look-up.""",
    ("keras-tensorflow", 2**22): """\
See the parts under [where the time goes](#where-the-time-goes). Next: a single compiled function
for bits and look-up, once XLA no longer enciphers a block anew for each of its four units.""",
    ("training", "torch"): """\
It is mnist-mlp, whose step is the shortest: the fixed cost of three calls of the layer counts, as
at 64 × 256 above, and so does the table of the law, which other arrays have driven out of the cache
when its turn comes again. Next: what is said there.""",
    ("training", "jax"): _FEW_ROUNDS,
    ("training", "keras-tensorflow"): _FEW_ROUNDS,
    ("fixed", "seconds"): """\
Most of the kit's time on the compiled frameworks is compilation: every check has its own shape.
Next: checks that share shapes.""",
}
