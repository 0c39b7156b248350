"""`quantal.tensorflow.dilute`: eager, in graphs, under XLA, with shapes known or not."""

import re

import keras
import numpy as np
import pytest

import quantal
import quantal.numpy

if keras.backend.backend() != "tensorflow":
    pytest.skip("about TensorFlow itself: needs KERAS_BACKEND=tensorflow", allow_module_level=True)

import tensorflow as tf

from quantal.tensorflow import dilute

KEY = quantal.key(7)
SHAPES = [(), (1,), (3,), (4,), (2, 5), (3, 4, 7), (2, 0), (0, 3), (5, 1), (64, 256)]
RUNS = ["eager", "graph", "xla", "unknown sizes", "unknown sizes, xla", "unknown rank"]


def run(how, function, x):
    x = tf.constant(x)
    if how == "eager":
        return function(x)
    shapes = {"graph": x.shape, "xla": x.shape, "unknown rank": None}
    signature = [tf.TensorSpec(shapes.get(how, [None] * x.shape.rank), x.dtype)]
    return tf.function(function, input_signature=signature, jit_compile="xla" in how)(x)


@pytest.mark.parametrize("how", RUNS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_key_gives_the_coefficients_of_numpy(how, shape):
    x = np.ones(shape, np.float32)
    got = run(how, lambda x: dilute(x, 0.37, 0.5, rng=KEY), x)
    np.testing.assert_array_equal(got, quantal.numpy.dilute(x, 0.37, 0.5, rng=KEY), strict=True)


@pytest.mark.parametrize("how", RUNS[:-1])
@pytest.mark.parametrize(
    "granularity",
    [
        {"broadcast_dims": 1},
        {"p_broadcast_dims": 0},
        {"broadcast_dims": -1, "p_broadcast_dims": (0, 1)},
        {"p_broadcast_dims": 2, "vary": "p"},
        {"p_broadcast_dims": 2, "vary": "q", "unit_mean": True},
    ],
    ids=str,
)
def test_granularity_as_in_numpy(how, granularity):
    x = np.ones((6, 5, 7), np.float32)
    got = run(how, lambda x: dilute(x, 0.4, 0.3, rng=KEY, **granularity), x)
    want = quantal.numpy.dilute(x, 0.4, 0.3, rng=KEY, **granularity)
    np.testing.assert_array_equal(got, want, strict=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("alpha", [1e-3, 0.2, 1.0, 1e6, float("inf")])
def test_dtypes(dtype, alpha):
    x = tf.cast(tf.random.stateless_normal((64, 33), (1, 2)), dtype)
    y = dilute(x, 0.2, alpha, rng=KEY)
    assert y.dtype == x.dtype
    # Multiplied in float32, or wider, and rounded once.
    wide = np.float64 if dtype == "float64" else np.float32
    c = quantal.numpy.dilute(np.ones(x.shape, np.float32), 0.2, alpha, rng=KEY)
    want = tf.cast(tf.constant(x.numpy().astype(wide) * c), dtype)
    np.testing.assert_array_equal(y.numpy(), want.numpy())
    assert np.isfinite(y.numpy().astype(wide)).all()


def test_gradients_are_the_coefficients():
    x = tf.random.stateless_normal((9, 10), (1, 2))
    c = quantal.numpy.dilute(np.ones(x.shape, np.float32), 0.5, 0.7, rng=KEY)
    for jit in (False, True):

        @tf.function(jit_compile=jit)
        def gradients(x):
            with tf.GradientTape() as outer:
                outer.watch(x)
                with tf.GradientTape() as tape:
                    tape.watch(x)
                    y = dilute(x, 0.5, 0.7, rng=KEY) ** 2
                first = tape.gradient(y, x)
            return first, outer.gradient(first, x)

        first, second = gradients(x)
        np.testing.assert_allclose(first, 2 * c * c * x, rtol=1e-6)
        np.testing.assert_allclose(second, 2 * c * c, rtol=1e-6)


def test_jacobian():
    x = tf.ones((2, 5))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dilute(x, 0.5, 0.7, rng=KEY)
    np.testing.assert_array_equal(
        tf.reshape(tape.jacobian(y, x), (10, 10)), np.diag(y.numpy().ravel())
    )


@pytest.mark.parametrize("jit", [False, True])
def test_forward_and_backward_share_one_draw_of_the_global_stream(jit):
    x = tf.ones((31, 17))

    @tf.function(jit_compile=jit)
    def step(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = dilute(x, 0.5, 1.0)
        return y, tape.gradient(y, x)

    (y, gradient), (other, _) = step(x), step(x)
    np.testing.assert_array_equal(y, gradient)
    assert np.any(y != other)  # all 527 equal by chance: below 0.75**527 < 1e-65


def test_identity_and_zeros():
    x = tf.constant([1.0, np.inf])
    assert dilute(x, 0.5, 1.0, training=False) is x
    assert dilute(x, 0, 1.0) is x
    variable = tf.Variable([1.0])
    assert dilute(variable, 0.5, 1.0, training=False) is variable
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = dilute(x, 1, 1.0)
    np.testing.assert_array_equal(y, [0, 0])
    np.testing.assert_array_equal(tape.gradient(y, x), [0, 0])


# --- sources of randomness -----------------------------------------------------------------------


def test_global_stream_follows_set_seed_and_is_untouched_by_others():
    x = tf.ones((8, 8))

    def two():
        tf.random.set_seed(3)
        return np.stack([dilute(x, 0.5, 1.0), dilute(x, 0.5, 1.0)])

    first = two()
    np.testing.assert_array_equal(first, two())
    assert np.any(first[0] != first[1])

    tf.random.set_seed(3)
    want = tf.random.uniform((3,))
    tf.random.set_seed(3)
    for rng in (KEY, (1, 2), tf.random.Generator.from_seed(1)):
        dilute(x, 0.5, 1.0, rng=rng)
    dilute(x, 0.5, 1.0, training=False)
    np.testing.assert_array_equal(tf.random.uniform((3,)), want)


@pytest.mark.parametrize("jit", [False, True])
def test_generator(jit):
    x = tf.ones((8, 8))
    one, two = (tf.random.Generator.from_seed(5) for _ in range(2))
    call = tf.function(lambda: dilute(x, 0.5, 1.0, rng=one), jit_compile=jit)
    outputs = [call(), call()]
    assert np.any(outputs[0] != outputs[1])
    np.testing.assert_array_equal(outputs, [dilute(x, 0.5, 1.0, rng=two) for _ in range(2)])


@pytest.mark.parametrize(
    ("algorithm", "jit"),
    # Only XLA has Threefry.
    [("philox", False), ("philox", True), ("threefry", True), ("auto_select", False)],
)
def test_a_generator_gives_what_it_makes_as_a_seed(algorithm, jit):
    x = tf.ones((8, 8))
    one, two = (tf.random.Generator.from_seed(5, algorithm) for _ in range(2))
    ours = tf.function(lambda: dilute(x, 0.5, 1.0, rng=one), jit_compile=jit)
    seed = tf.function(lambda: two.make_seeds(1)[:, 0], jit_compile=jit)
    for _ in range(3):
        np.testing.assert_array_equal(ours(), dilute(x, 0.5, 1.0, rng=seed()))
    np.testing.assert_array_equal(one.state, two.state)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
@pytest.mark.parametrize("jit", [False, True])
def test_a_seed_is_a_key_folded(dtype, jit):
    x = tf.ones((8, 8))
    for first, second in [(0, 0), (5, 6), (2**31 - 1, 2**31 - 1)]:
        seed = tf.constant([first, second], dtype)
        got = tf.function(lambda seed: dilute(x, 0.5, 1.0, rng=seed), jit_compile=jit)(seed)
        want = dilute(x, 0.5, 1.0, rng=quantal.key(first).fold_in(second))
        np.testing.assert_array_equal(got, want)


def test_wide_and_negative_seeds_are_all_different():
    x = tf.ones((8, 8))
    seeds = [(0, 1), (1, 0), (-1, 0), (0, -1), (2**40, 0), (0, 2**40), (2**32 - 1, 0)]
    drawn = [
        dilute(x, 0.5, 1.0, rng=tf.constant(seed, tf.int64)).numpy().tobytes() for seed in seeds
    ]
    assert len(set(drawn)) == len(seeds)


# --- what a graph holds, and how often XLA compiles ----------------------------------------------


def test_a_graph_refers_to_the_table_and_holds_no_copy():
    step = tf.function(lambda x: dilute(x, 0.123, 0.5)).get_concrete_function(tf.ones((4, 4)))
    assert step.graph.as_graph_def().ByteSize() < 100_000  # the table has 524,288 bytes
    assert any(tensor.shape == (2, 65536) for tensor in step.captured_inputs)


def test_few_sizes_to_compile_for():
    from quantal.tensorflow._random_bits import _rounded

    counts = np.unique(np.geomspace(1, 1e8, 5000).astype(int)).tolist()
    rounded = [_rounded(count) for count in counts]
    assert all(n <= r <= n * 1.125 for n, r in zip(counts, rounded, strict=True))
    assert len(set(rounded)) <= 8 * 27 + 16  # at most eight an octave
    on_graph = [int(_rounded(tf.constant(count))) for count in counts[::50]]
    assert all(n <= r <= n * 1.125 + 1 for n, r in zip(counts[::50], on_graph, strict=True))


def test_a_seed_means_the_same_in_eager_and_compiled_code():
    x = tf.ones((33, 5))
    eager = dilute(x, 0.3, 0.5, rng=(3, 4))
    for jit in (False, True):
        function = tf.function(lambda x: dilute(x, 0.3, 0.5, rng=(3, 4)), jit_compile=jit)
        np.testing.assert_array_equal(function(x), eager)


# --- bad input -----------------------------------------------------------------------------------


def test_messages():
    x = tf.ones((2, 3))
    with pytest.raises(TypeError, match=r"x: expected a floating-point array\. .* x='int32'"):
        dilute(tf.ones((2,), tf.int32), 0.5, 1.0)
    with pytest.raises(TypeError, match=r"alpha: expected a number above 0.*with_mean_gain"):
        dilute(x, 0.5)
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
        dilute(x, 1.5, 1.0)
    for rng in (1, "seed", (1.0, 2.0), (1, 2, 3), object()):
        with pytest.raises(TypeError, match=r"rng: expected a tf\.random.Generator, a seed"):
            dilute(x, 0.5, 1.0, rng=rng)
    with pytest.raises(ValueError, match="broadcast_dims: expected distinct axes"):
        dilute(x, 0.5, 1.0, broadcast_dims=2)
    with pytest.raises(ValueError, match="x: expected a tensor of known rank"):
        run("unknown rank", lambda x: dilute(x, 0.5, 1.0, broadcast_dims=0), np.ones((2, 3)))


JUNK = [
    None, True, "x", b"x", 1j, -1, 7, 1.5, float("nan"), 10**400, 2**64, (), [], {}, {"a": 1},
    (1.5,), ("a", None), [[1]], range(3), object(), np.int64(1), np.array([0, 1]),
    np.array(["a"]), np.ones((2, 3)), tf.constant("x"), tf.ones((2, 3)), tf.ones((2,), tf.int32),
    tf.sparse.from_dense([1.0]), tf.ragged.constant([[1.0], []]), KEY, slice(1), ...,
]  # fmt: skip
GOOD = {"rate": 0.5, "alpha": 1.0, "rng": KEY, "training": True, "vary": "pq"}
GOOD |= {"unit_mean": False, "broadcast_dims": (), "p_broadcast_dims": ()}


@pytest.mark.parametrize("name", ["x", *GOOD])
def test_bad_arguments(name):
    """Everything works, or has an error that names the argument."""
    said = []
    for junk in JUNK:
        try:
            dilute(**{"x": tf.ones((2, 3))} | GOOD | {name: junk})
        except (TypeError, ValueError) as error:
            said.append(str(error))
    assert len(said) > 10
    assert [each for each in said if not re.match(rf"{name}: expected (?s:.+)\. Rec", each)] == []


@pytest.mark.parametrize("x", [tf.constant([1, 2]), tf.constant(["a"]), None, "x"], ids=str)
def test_what_is_not_diluted_may_be_anything(x):
    assert dilute(x, 0.5, 1.0, training=False) is x
    assert dilute(x, 0, 1.0) is x


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dims", [(), (0,)], ids=["own", "shared"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_a_dropped_unit_is_zero_whatever_it_was(jit, dims, dtype):
    """As in tf.nn.dropout, forward and backward; what is kept stays infinite, or NaN."""
    values = np.resize([np.inf, -np.inf, np.nan, 1.0], (16, 16))

    @tf.function(jit_compile=jit)
    def both(function):
        with tf.GradientTape() as tape:
            x = tf.constant(values, dtype)
            tape.watch(x)
            y = function(x)
        return y, tape.gradient(y, x, tf.constant(values, dtype))

    def ours(x):
        return dilute(x, 0.5, 1.0, rng=KEY, p_broadcast_dims=dims)

    ones = np.ones(values.shape, np.float32)
    c = quantal.numpy.dilute(ones, 0.5, 1.0, rng=KEY, p_broadcast_dims=dims)
    for got in both(ours):
        got = tf.cast(got, tf.float64).numpy()
        np.testing.assert_array_equal(got[c == 0], 0)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(values) & (c > 0))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(values) & (c > 0))
    native = tf.cast(both(lambda x: tf.nn.dropout(x, 0.5))[0], tf.float64).numpy()
    assert np.isfinite(native).sum() > np.isfinite(values).sum()


def test_dispatch():
    x = np.ones((3, 5), np.float32)
    got = quantal.dilute(tf.constant(x), 0.5, 1.0, rng=KEY)
    assert isinstance(got, tf.Tensor)
    np.testing.assert_array_equal(got, quantal.dilute(x, 0.5, 1.0, rng=KEY))
