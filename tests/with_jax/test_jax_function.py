"""`quantal.jax.dilute`: the same numbers as NumPy, inside every transformation of JAX."""

import itertools
import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import ad_checkpoint, export, lax
from jax import numpy as jnp
from scipy import stats

import quantal
import quantal.jax
import quantal.numpy
from quantal import Dilution
from quantal._granularity import coefficient_shapes
from quantal.jax import _random_bits as bits
from quantal.keys import CELLS
from quantal.table import table

KEY = jax.random.key(3)
PORTABLE = quantal.key(3)
OWN, SHARED = {}, {"p_broadcast_dims": 0}
GRANULARITY = [OWN, {"broadcast_dims": 1}, SHARED, {"broadcast_dims": 0, "p_broadcast_dims": -1}]


@pytest.fixture(autouse=True)
def _strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


def normal(shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype)


def expected(x, *law, key=PORTABLE, **options):
    """What NumPy makes of the same key."""
    return quantal.numpy.dilute(np.asarray(x), *law, rng=key, **options)


def identical(actual, desired):
    assert actual.dtype == desired.dtype
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(desired))


# --- the same numbers as NumPy -------------------------------------------------------------------


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    law=st.sampled_from([(0.2, 0.2), (0.5, math.inf), (1e-6, 1.0), (0.9999, 3.0), (0.3, 1e-3)]),
    vary=st.sampled_from(["pq", "p", "q"]),
    seed=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_coefficients_are_those_of_numpy(shape, law, vary, seed, data):
    axes = st.sets(st.integers(0, max(len(shape) - 1, 0)), max_size=len(shape)).map(tuple)
    shapes = coefficient_shapes(shape, data.draw(axes), data.draw(axes))
    dilution, key = Dilution(*law, vary=vary), quantal.key(seed)
    native = jax.random.wrap_key_data(np.array([key.word0, key.word1], np.uint32))
    desired = quantal.numpy.coefficients(dilution, *shapes, key)
    identical(quantal.jax.coefficients(dilution, *shapes, native), desired)


@pytest.mark.parametrize(
    ("shape", "options"),
    list(zip([(5, 7), (2, 3, 8), (3, 2, 5), (4, 6)], GRANULARITY, strict=True)),
)
def test_every_kind_of_key_eager_and_compiled(shape, options):
    x = normal(shape)
    desired = expected(x, 0.3, 0.7, **options)
    for key in (KEY, PORTABLE, jax.random.PRNGKey(3), np.asarray(jax.random.PRNGKey(3))):
        identical(quantal.jax.dilute(x, 0.3, 0.7, key=key, **options), desired)
    for key in (KEY, PORTABLE):
        compiled = jax.jit(lambda x, key=key: quantal.jax.dilute(x, 0.3, 0.7, key=key, **options))
        identical(compiled(x), desired)
    identical(quantal.dilute(x, 0.3, 0.7, rng=KEY, **options), desired)


def test_the_portable_layout_does_not_depend_on_the_configuration():
    x = normal((3, 6))
    with jax.threefry_partitionable(False):
        for options in (OWN, SHARED):
            actual = quantal.jax.dilute(x, 0.3, 0.7, key=KEY, **options)
            identical(actual, expected(x, 0.3, 0.7, **options))


def test_different_keys_give_different_draws():
    x = jnp.ones((8, 32))
    draws = [quantal.jax.dilute(x, 0.5, 1.0, key=jax.random.key(s)).tobytes() for s in range(20)]
    assert len(set(draws)) == 20


# --- counters of more than 32 bits ---------------------------------------------------------------


@pytest.mark.parametrize(
    "shape",
    [(2**11, 2**13, 2**12), (3, 2**31 - 1, 5), (2**17 + 1, 2**16 - 1, 7), (2**32 - 5,), (2, 2**31)],
)
def test_counters_are_the_row_major_index_in_64_bits(shape):
    rng = np.random.default_rng(1)
    positions = [np.append(rng.integers(0, n, 500), [0, n - 1]).astype(np.uint32) for n in shape]
    high, low = bits.counters([jnp.asarray(p) for p in positions], shape)
    assert high.dtype == low.dtype == jnp.uint32
    words = zip(np.asarray(high).tolist(), np.asarray(low).tolist(), strict=True)
    for (h, lo), *position in zip(words, *(p.tolist() for p in positions), strict=True):
        index = 0
        for n, i in zip(shape, position, strict=True):
            index = index * n + i
        assert h * 2**32 + lo == index


def test_an_array_of_more_than_2_to_the_34_units_is_traced():
    x = jax.ShapeDtypeStruct((2**20, 2**15), jnp.bfloat16)
    lowered = jax.jit(lambda x, key: quantal.jax.dilute(x, 0.5, 1.0, key=key)).lower(x, KEY)
    assert lowered.out_info.shape == x.shape


SYMBOLIC = [("b, 8", (5, 8)), ("b, d", (5, 7)), ("n", (13,)), ("b, s, 2*d", (3, 5, 6))]


@pytest.mark.parametrize(("spec", "shape"), SYMBOLIC)
@pytest.mark.parametrize("options", [{}, {"p_broadcast_dims": 0}, {"broadcast_dims": -1}])
def test_symbolic_shapes(spec, shape, options):
    def step(x, words):
        key = jax.random.wrap_key_data(words)
        y, pull = jax.vjp(lambda x: draw(x, key, **options), x)
        return y, pull(jnp.ones_like(y))[0]

    symbolic = jax.ShapeDtypeStruct(export.symbolic_shape(spec), jnp.float32)
    exported = export.export(jax.jit(step))(symbolic, jax.random.key_data(KEY))
    x = normal(shape)
    y, gradient = export.deserialize(exported.serialize()).call(x, jax.random.key_data(KEY))
    identical(y, draw(x, **options))
    identical(gradient, draw(jnp.ones_like(x), **options))


def test_counters_of_unknown_sizes_are_those_of_known_ones():
    shape, rng = (2**17 + 1, 2**16 - 1, 7), np.random.default_rng(1)
    positions = [jnp.asarray(rng.integers(0, n, 500), jnp.uint32) for n in shape]
    known = bits.counters(positions, shape)
    sizes = tuple(map(np.uint32, shape))  # no integers to Python, as symbols are not
    for ours, theirs in zip(bits.counters(positions, sizes), known, strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- gradients and transformations ---------------------------------------------------------------


def draw(x, key=KEY, **options):
    return quantal.jax.dilute(x, 0.3, 0.7, key=key, **options)


@pytest.mark.parametrize("options", [OWN, SHARED])
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.checkpoint], ids=["eager", "jit", "re"])
def test_the_gradient_is_the_coefficient(wrap, options):
    x, upstream = normal((6, 12)), normal((6, 12)) + 1
    y, pull = jax.vjp(wrap(lambda x: draw(x, **options)), x)
    c = draw(jnp.ones_like(x), **options)
    identical(y, x * c)
    identical(pull(upstream)[0], upstream * c)
    identical(jax.jvp(wrap(lambda x: draw(x, **options)), (x,), (upstream,))[1], upstream * c)


def test_second_derivatives():
    x, v = normal((4, 8)), normal((4, 8)) + 1
    c = draw(jnp.ones_like(x))

    def loss(x):
        return jnp.sum(draw(x) ** 3)

    @jax.jit
    def products(x):
        forward = jax.jvp(jax.grad(loss), (x,), (v,))[1]
        return forward, jax.grad(lambda x: jnp.sum(jax.grad(loss)(x) * v))(x)

    for product in products(x):
        np.testing.assert_allclose(product, 6 * c**3 * x * v, rtol=1e-5)


def test_vmap_with_a_key_for_each_example_or_one_for_all():
    x, keys = normal((5, 3, 6)), jax.random.split(KEY, 5)
    desired = jnp.stack([draw(x[i], keys[i]) for i in range(5)])
    identical(jax.vmap(draw)(x, keys), desired)
    identical(jax.jit(jax.vmap(draw))(x, jax.random.key_data(keys)), desired)
    identical(jax.vmap(draw)(x), jnp.stack([draw(x[i]) for i in range(5)]))
    gradients = jax.jit(jax.vmap(jax.grad(lambda x, key: jnp.sum(draw(x, key)))))(x, keys)
    identical(gradients, jnp.stack([draw(jnp.ones_like(x[0]), key) for key in keys]))


def test_scan_draws_anew_in_each_step():
    x, keys = normal((4, 8)), jax.random.split(KEY, 3)
    last, _ = jax.jit(lambda x: lax.scan(lambda x, key: (draw(x, key), None), x, keys))(x)
    for key in keys:
        x = draw(x, key)
    identical(last, x)


def remembered(function, x, capsys):
    """Return the bytes a unit that a backward pass stores, arguments and constants left out."""
    ad_checkpoint.print_saved_residuals(function, x)
    lines = capsys.readouterr().out.splitlines()
    arrays = [line.split("]")[0].split("[") for line in lines if " output of " in line]
    sizes = {"f32": 4, "i32": 4, "u32": 4, "u16": 2, "bool": 1}
    shapes = [(name, map(int, filter(None, shape.split(",")))) for name, shape in arrays]
    return sum(sizes[name] * math.prod(shape) for name, shape in shapes) / x.size


@pytest.mark.parametrize(("options", "most"), [(OWN, 2), (SHARED, 1)], ids=["own", "shared"])
def test_what_a_backward_pass_remembers(options, most, capsys):
    x = normal((512, 1024))

    def loss(x):
        return jnp.sum(draw(x, **options))

    assert most <= remembered(loss, x, capsys) <= most + 4 / 512  # and a row, or a number, more
    assert remembered(jax.checkpoint(loss), x, capsys) == 0


def test_recomputation_gives_the_same_gradient():
    x = normal((8, 16))

    def loss(x):
        return jnp.sum(jnp.sin(draw(x)))

    gradient = jax.jit(jax.grad(loss))(x)
    identical(gradient == 0, draw(x) == 0)
    for remat in (jax.checkpoint(loss), jax.checkpoint(jax.jit(loss))):
        identical(jax.jit(jax.grad(remat))(x), gradient)


def test_a_key_is_used_once():
    x = jnp.ones((3, 8))  # JAX 0.8 does not look at what it traced before, for another test
    with jax.debug_key_reuse(True):
        key = jax.random.key(0)
        draw(x, key)
        with pytest.raises(jax.errors.KeyReuseError):
            draw(x, key)
        jax.jit(lambda key: draw(draw(x, jax.random.fold_in(key, 0)), key))(jax.random.key(1))


def test_a_compiled_step_moves_nothing_between_host_and_device():
    x = normal((8, 8))
    step = jax.jit(jax.value_and_grad(lambda x, key: jnp.sum(draw(x, key))))
    step(x, KEY)
    with jax.transfer_guard("disallow"):
        step(x, KEY)


# --- types and limits ----------------------------------------------------------------------------

TYPES = [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64]


@pytest.mark.parametrize("dtype", TYPES)
def test_the_product_alone_is_rounded(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        x = normal((16, 64), dtype)
        c = quantal.numpy.coefficients(Dilution(0.3, 0.7), (16, 64), None, PORTABLE)
        wide = np.float64 if dtype == jnp.float64 else np.float32
        desired = (np.asarray(x).astype(wide) * c).astype(dtype)
        for f in (draw, jax.jit(draw)):
            identical(f(x), desired)


@pytest.mark.parametrize("options", [OWN, SHARED])
@pytest.mark.parametrize("dtype", TYPES)
def test_never_nan(dtype, options):
    with jax.enable_x64(dtype == jnp.float64), jax.debug_nans(True):
        x = jnp.ones((32, 32), dtype)

        @jax.jit  # once for all laws: they come as arrays
        def both(rate, alpha):
            f = lambda x: quantal.jax.dilute(x, rate, alpha, key=KEY, **options)  # noqa: E731
            y, pull = jax.vjp(f, x)
            return y, pull(x)[0]

        rates, alphas = (0.0, 1e-4, 0.5, 0.95, 1.0), (1e-3, 0.2, 1.0, 1e6, math.inf)
        for rate, alpha in itertools.product(rates, alphas):
            for result in both(jnp.float32(rate), jnp.float32(alpha)):
                assert result.dtype == dtype
                assert bool(jnp.isfinite(result).all())


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("options", GRANULARITY)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_what_is_dropped_is_0_also_if_it_was_infinite(dtype, options, wrap):
    bad = jnp.asarray([jnp.inf, -jnp.inf, jnp.nan], dtype)
    x = bad[jax.random.randint(jax.random.key(0), (16, 24), 0, 3)]
    y, pull = jax.vjp(wrap(lambda x: draw(x, **options)), x)
    kept = np.asarray(draw(jnp.ones_like(x), **options)) != 0
    assert 0 < kept.mean() < 1
    for got in (y, pull(x)[0]):
        got = np.asarray(got, np.float32)
        np.testing.assert_array_equal(got, np.where(kept, np.asarray(x, np.float32), 0))


def test_whatever_is_not_drawn_for_comes_back_as_it_is():
    float0 = np.zeros((2, 2), jax.dtypes.float0)
    for x in (jnp.arange(3), jnp.ones(2, bool), jnp.ones(2, complex), float0, KEY, [1.0], None):
        assert quantal.jax.dilute(x, 0.5, 1.0, training=False) is x
        assert quantal.jax.dilute(x, 0.0, 1.0) is x


def test_what_returns_its_input_or_zeros():
    x = normal((3, 4))
    assert quantal.jax.dilute(x, 0.5, 1.0, training=False) is x
    assert quantal.jax.dilute(x, 0.0, 1.0) is x
    identical(quantal.jax.dilute(x, 1.0, 1.0), jnp.zeros_like(x))
    identical(jax.grad(lambda x: quantal.jax.dilute(x, 1.0, 1.0).sum())(x), jnp.zeros_like(x))
    jaxpr = jax.make_jaxpr(lambda x: quantal.jax.dilute(x, 0.5, 1.0, training=False))(x)
    assert not jaxpr.eqns


@pytest.mark.parametrize("name", ["rbg", "unsafe_rbg"])
def test_other_generators_follow_the_law(name):
    # False alarms: 1e-7 for the binomial test, 1e-7 for the DKW bound, for two generators.
    dilution, n = Dilution(0.3, 0.7), 2**20
    key = jax.random.key(0, impl=name)
    c = np.asarray(quantal.jax.coefficients(dilution, (2**10, 2**10), None, key)).ravel()
    assert stats.binomtest(int(np.sum(c == 0)), n, dilution.rate).pvalue > 1e-7
    # Against the table, which is proven elsewhere; its two rows differ by one cell at most.
    c, cells = np.sort(c), table(dilution).values[0]
    below = np.searchsorted(c, cells, side="right") / n
    furthest = np.max(np.abs(below - np.searchsorted(cells, cells, side="right") / CELLS))
    assert furthest < math.sqrt(math.log(2 / 1e-7) / (2 * n)) + 1 / CELLS
    shared = quantal.jax.coefficients(dilution, (2**10, 2**10), (1, 1), key)
    assert len(np.unique(shared)) <= 2
    x = jnp.ones((3, 5))
    identical(jax.jit(draw)(x, key), draw(x, key))


# --- rate and alpha as arrays --------------------------------------------------------------------


@pytest.mark.parametrize("options", [OWN, SHARED])
def test_one_trace_serves_every_rate_and_alpha(options):
    traces = 0

    @jax.jit
    def f(x, rate, alpha):
        nonlocal traces
        traces += 1
        return quantal.jax.dilute(x, rate, alpha, key=KEY, **options)

    x = normal((6, 8))
    for rate, alpha in [(r / 10, 0.7) for r in range(11)] + [(0.3, 0.2), (0.3, math.inf)]:
        identical(f(x, jnp.float32(rate), jnp.float32(alpha)), expected(x, rate, alpha, **options))
    assert traces == 1


def test_arrays_in_eager_code_under_vmap_grad_and_half_precision():
    x, rates = normal((6, 8)), jnp.array([0.1, 0.6])
    desired = [expected(x, rate, 0.7) for rate in (0.1, 0.6)]
    identical(quantal.jax.dilute(x, rates[0], 0.7, key=KEY), desired[0])
    per_rate = jax.vmap(lambda rate: quantal.jax.dilute(x, rate, 0.7, key=KEY))(rates)
    identical(per_rate, np.stack(desired))
    assert jax.grad(lambda rate: quantal.jax.dilute(x, rate, 0.7, key=KEY).sum())(rates[0]) == 0
    half = quantal.jax.dilute(x, jnp.bfloat16(0.6), 0.7, key=KEY)
    assert half.dtype == x.dtype


def test_arrays_are_checked():
    x = normal((2, 2))
    for wrong in (jnp.ones(2), jnp.int32(1)):
        with pytest.raises(TypeError, match="rate: expected a number, or a scalar floating-point"):
            quantal.jax.dilute(x, wrong, 1.0, key=KEY)
    with pytest.raises(TypeError, match=r"alpha.*no default"):
        quantal.jax.dilute(x, jnp.float32(0.5), key=KEY)
    with pytest.raises(Exception, match="rate: expected a number in"):
        jax.block_until_ready(quantal.jax.dilute(x, jnp.float32(1.5), 1.0, key=KEY))


# --- bad input -----------------------------------------------------------------------------------


def test_what_is_not_floating_is_refused():
    float0 = np.zeros((2, 2), jax.dtypes.float0)
    wrong = jnp.ones((2, 2), int), jnp.ones(2, bool), jnp.ones(2, complex), float0, KEY, [1.0]
    for x in wrong:
        with pytest.raises(TypeError, match=r"x: expected a floating-point array\. Received: x="):
            quantal.jax.dilute(x, 0.5, 1.0, key=KEY)


def test_what_is_not_a_key_is_refused():
    x = jnp.ones(3)
    with pytest.raises(TypeError, match=r"key: expected .* pass key=jax\.random\.key\(seed\)"):
        quantal.jax.dilute(x, 0.5, 1.0)
    with pytest.raises(TypeError, match=r"key: expected .* pass key=jax\.random\.key\(seed\)"):
        quantal.dilute(x, 0.5, 1.0)
    with pytest.raises(TypeError, match=r"key: expected .* use jax\.vmap"):
        quantal.jax.dilute(x, 0.5, 1.0, key=jax.random.split(KEY, 2))
    for wrong in (0, "key", jnp.ones(2), np.random.default_rng(0)):
        with pytest.raises(TypeError, match="key: expected a JAX key"):
            quantal.jax.dilute(x, 0.5, 1.0, key=wrong)


def test_parameters_and_axes_are_checked_by_the_core():
    x = jnp.ones((2, 3))
    with pytest.raises(TypeError, match="training: expected True or False"):
        quantal.jax.dilute(x, 0.5, 1.0, key=KEY, training="no")
    with pytest.raises(TypeError, match=r"alpha.*no default"):
        quantal.jax.dilute(x, 0.5, key=KEY)
    with pytest.raises(ValueError, match="rate: expected"):
        quantal.jax.dilute(x, -0.1, 1.0, key=KEY)
    with pytest.raises(ValueError, match="p_broadcast_dims: expected"):
        quantal.jax.dilute(x, 0.5, 1.0, key=KEY, p_broadcast_dims=2)
