"""What the three layers share, and what Flax and Equinox ask of their own dropout."""

import copy
import inspect
import math
import pickle
import re

import equinox as eqx
import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax import export
from jax import numpy as jnp
from scipy import stats

import quantal.jax.equinox
import quantal.jax.linen
import quantal.jax.nnx

KEY = jax.random.key(5)


def in_nnx(x, rate, alpha, key=None, off=None, **options):
    return quantal.jax.nnx.QSD(rate, alpha, **options)(x, rngs=key, deterministic=off)


def in_linen(x, rate, alpha, key=None, off=False, **options):
    return quantal.jax.linen.QSD(rate, alpha, **options).apply({}, x, deterministic=off, rng=key)


def in_equinox(x, rate, alpha, key=None, off=None, **options):
    return quantal.jax.equinox.QSD(rate, alpha, **options)(x, key=key, inference=off)


layers = pytest.mark.parametrize(
    "layer", [in_nnx, in_linen, in_equinox], ids=["nnx", "linen", "equinox"]
)


def normal(*shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(0).standard_normal(shape), dtype)


@layers
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"broadcast_dims": (0,), "unit_mean": True},
        {"p_broadcast_dims": (0,)},
        {"vary": "q"},
    ],
)
def test_a_layer_is_dilute(layer, options):
    x = normal(4, 8)
    desired = quantal.jax.dilute(x, 0.3, 0.7, key=KEY, **options)
    np.testing.assert_array_equal(layer(x, 0.3, 0.7, KEY, **options), desired)
    portable = layer(x, 0.3, 0.7, quantal.key(5), **options)
    np.testing.assert_array_equal(portable, desired)


@layers
def test_switched_off_or_at_rate_0_the_input_itself_comes_back(layer):
    x = normal(3, 4)
    assert layer(x, 0.5, 1.0, off=True) is x
    assert layer(x, 0.5, 1.0, KEY, off=True) is x
    assert layer(x, 0.0, 1.0) is x
    jaxpr = jax.make_jaxpr(lambda x: layer(x, 0.5, 1.0, off=True))(x)
    assert not jaxpr.eqns


@layers
def test_rate_1_gives_zeros_and_finite_gradients_without_a_key(layer):
    x = normal(20, 20)
    y, pull = jax.vjp(lambda x: layer(x, 1.0, math.inf), x)
    np.testing.assert_array_equal(y, np.zeros_like(x))
    np.testing.assert_array_equal(pull(x)[0], np.zeros_like(x))


@layers
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_the_dtype_is_kept(layer, dtype):
    assert layer(normal(8, 8, dtype=dtype), 0.3, math.inf, KEY).dtype == dtype


@layers
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_alpha_inf_drops_at_the_rate_and_scales_the_rest(layer, rate):
    # 9 tests of n = 10**5 units; false alarms: 1e-7 each.
    y = np.asarray(layer(jnp.ones((10, 100, 100)), rate, math.inf, KEY))
    assert stats.binomtest(int(np.sum(y == 0)), y.size, rate).pvalue > 1e-7
    np.testing.assert_array_equal(y[y != 0], np.float32(1 / (1 - rate)))


@layers
@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (-1,), (0, 2), (1, 2, 3)])
def test_broadcast_dims_share_one_coefficient(layer, axes):
    y = np.asarray(layer(jnp.ones((7, 6, 5, 4)), 0.5, math.inf, KEY, broadcast_dims=axes))
    first = y[tuple(slice(1) if a in axes or a - 4 in axes else slice(None) for a in range(4))]
    np.testing.assert_array_equal(y, np.broadcast_to(first, y.shape))
    assert {0.0, 2.0} == set(np.unique(y))


@layers
def test_the_words_of_the_core_are_used(layer):
    x = normal(3)
    with pytest.raises(TypeError, match=r"alpha.*no default"):
        layer(x, 0.5, None, KEY)
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
        layer(x, 1.5, 1.0, KEY)
    with pytest.raises(TypeError, match="x: expected a floating-point array"):
        layer(jnp.arange(3), 0.5, 1.0, KEY)


@layers
def test_an_array_valued_rate_is_traced_once(layer):
    traces = 0

    @jax.jit
    def step(x, rate, alpha, key):
        nonlocal traces
        traces += 1
        return layer(x, rate, alpha, key)

    x = normal(4, 8)
    for rate in np.arange(1, 11) / 10:
        desired = quantal.dilute(np.asarray(x), float(rate), 0.7, rng=quantal.key(5))
        got = step(x, jnp.float32(rate), jnp.float32(0.7), KEY)
        np.testing.assert_array_equal(got, desired)
    assert traces == 1


@layers
@pytest.mark.parametrize("options", [{}, {"p_broadcast_dims": (0,)}], ids=["own", "shared"])
def test_a_training_step_compiles_for_gpu(layer, options):
    # Lowered only: there is no such device here. No host call must be left in the program.
    def step(w, x, words):
        key = jax.random.wrap_key_data(words)
        return w - jax.grad(lambda w: jnp.sum(layer(x @ w, 0.5, 1.0, key, **options)))(w)

    step = jax.jit(step, donate_argnums=0)
    words = jax.ShapeDtypeStruct((2,), jnp.uint32)
    for dtype in (jnp.float32, jnp.bfloat16):
        w, x = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((4, 16), (8, 4)))
        exported = export.export(step, platforms=["cuda"])(w, x, words)
        assert exported.platforms == ("cuda",)
        program = exported.mlir_module()
        assert "callback" not in program
        assert "tf.aliasing_output" in program  # the new weights take the place of the old
        if not options:  # JAX numbers the units of its own random numbers with 64 bits
            assert not re.search(r"<(8x16|128|32x4|8x4)x\w*64>", program)


@layers
def test_under_grad_and_checkpoint_one_draw_is_shared(layer):
    x = normal(8, 8)
    for wrap in (jax.jit, jax.checkpoint):
        y, pull = jax.vjp(wrap(lambda x: layer(x, 0.3, 0.7, KEY)), x)
        np.testing.assert_array_equal(y, x * pull(jnp.ones_like(x))[0])


@pytest.mark.parametrize(
    ("native", "own"),
    [
        (nnx.Dropout, quantal.jax.nnx.QSD),
        (nnx.Dropout.__call__, quantal.jax.nnx.QSD.__call__),
        (nn.Dropout, quantal.jax.linen.QSD),
        (nn.Dropout.__call__, quantal.jax.linen.QSD.__call__),
        (eqx.nn.Dropout, quantal.jax.equinox.QSD),
        (eqx.nn.Dropout.__call__, quantal.jax.equinox.QSD.__call__),
    ],
)
def test_the_native_arguments_are_there_with_their_defaults(native, own):
    ours = inspect.signature(own).parameters
    theirs = inspect.signature(native).parameters
    assert next(iter(ours)) == next(iter(theirs))
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default, name
        assert ours[name].kind == parameter.kind, name


def test_copies_and_pickles_draw_the_same():
    x = normal(4, 8)
    nnx_layer = quantal.jax.nnx.QSD(0.3, 0.7, rngs=quantal.key(5))
    eqx_layer = quantal.jax.equinox.QSD(0.3, 0.7)
    copies = copy.deepcopy(nnx_layer), nnx.clone(nnx_layer)
    desired = nnx_layer(x)
    for twin in copies:
        np.testing.assert_array_equal(twin(x), desired)
    for twin in (copy.deepcopy(eqx_layer), pickle.loads(pickle.dumps(eqx_layer))):
        np.testing.assert_array_equal(twin(x, key=KEY), eqx_layer(x, key=KEY))


@layers
def test_axes_may_come_as_a_list(layer):
    x = normal(4, 8)
    lists = {"broadcast_dims": [1], "p_broadcast_dims": [0]}
    tuples = {name: tuple(axes) for name, axes in lists.items()}
    run = jax.jit(lambda x: layer(x, 0.3, 0.7, KEY, **lists))
    np.testing.assert_array_equal(run(x), layer(x, 0.3, 0.7, KEY, **tuples))
