"""A law that changes from step to step: what it costs, and that it is obeyed."""

import equinox as eqx
import jax
import numpy as np
import pytest
from flax import nnx
from jax import export, lax
from jax import numpy as jnp

import quantal
import quantal.jax.equinox
import quantal.jax.haiku
import quantal.jax.linen
import quantal.jax.nnx
from quantal.jax import _coefficients, law

KEY, PORTABLE = jax.random.key(1), quantal.key(1)
X = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)), jnp.float32)
LAWS = [(0.3, 0.7), (0.3, 0.8), (0.6, 0.8), (0.0, 1.0), (1.0, 1.0), (0.5, float("inf"))]


def expected(rate, alpha, **options):
    return quantal.dilute(np.asarray(X), rate, alpha, rng=PORTABLE, **options)


def in_function(law, **options):
    return quantal.jax.dilute(X, law, key=KEY, **options)


def in_nnx(law, **options):
    return quantal.jax.nnx.QSD(law, **options)(X, rngs=KEY)


def in_linen(law, **options):
    return quantal.jax.linen.QSD(law, **options).apply({}, X, False, rng=KEY)


def in_equinox(law, **options):
    return quantal.jax.equinox.QSD(law, **options)(X, key=KEY)


def in_haiku(law, **options):
    return quantal.jax.haiku.dropout(KEY, law, X, **options)


everywhere = pytest.mark.parametrize("draw", [in_function, in_nnx, in_linen, in_equinox, in_haiku])


@everywhere
@pytest.mark.parametrize("shared", [False, True])
def test_one_trace_serves_every_law(draw, shared):
    traces, options = 0, {"p_broadcast_dims": (0,)} if shared else {}

    @jax.jit
    def step(law):
        nonlocal traces
        traces += 1
        return draw(law, **options)

    for parameters in LAWS:
        got = step(law(*parameters, shared_p=shared))
        np.testing.assert_array_equal(got, expected(*parameters, **options))
    assert traces == 1


def test_layers_keep_a_law_that_is_changed():
    traces = 0

    @nnx.jit
    def step(layer):
        nonlocal traces
        traces += 1
        return layer(X, rngs=KEY)

    layer = quantal.jax.nnx.QSD(law(0.3, 0.7))
    for parameters in LAWS:
        layer.rate = law(*parameters)
        np.testing.assert_array_equal(step(layer), expected(*parameters))
    assert traces == 1
    site = quantal.jax.nnx.sites(nnx.Sequential(layer))[0]
    assert (site.kind, site.rate, site.alpha) == ("QSD", 0.5, float("inf"))

    layer = quantal.jax.equinox.QSD(law(0.3, 0.5))
    run = eqx.filter_jit(lambda layer: layer(X, key=KEY))
    np.testing.assert_array_equal(run(layer), expected(0.3, 0.5))
    layer = eqx.tree_at(lambda layer: layer.p, layer, law(0.6, 0.5))
    np.testing.assert_array_equal(run(layer), expected(0.6, 0.5))
    assert quantal.jax.equinox.sites([layer])[0].alpha == 0.5


def test_variants_of_the_law():
    for options in ({"vary": "q"}, {"unit_mean": True}):
        np.testing.assert_array_equal(
            in_function(law(0.3, 0.7, **options)), expected(0.3, 0.7, **options)
        )


def test_laws_can_be_stacked():
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(law(*p) for p in LAWS))
    desired = np.stack([expected(*parameters) for parameters in LAWS])
    np.testing.assert_array_equal(jax.vmap(in_function)(stacked), desired)
    _, scanned = lax.scan(lambda _, law: (None, in_function(law)), None, stacked)
    np.testing.assert_array_equal(scanned, desired)


def test_no_gradient_flows_to_a_law():
    gradient = jax.grad(lambda law: in_function(law).sum(), allow_int=True)(law(0.3, 0.7))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(gradient) if leaf.dtype == jnp.float32)


def test_a_program_with_a_law_needs_no_host():
    step = jax.jit(jax.grad(lambda x, law: quantal.jax.dilute(x, law, key=KEY).sum()))
    exported = export.export(step, platforms=["cpu", "cuda"])(X, law(0.3, 0.7))
    assert "callback" not in exported.mlir_module()
    np.testing.assert_array_equal(
        exported.call(X, law(0.6, 0.2)), quantal.jax.dilute(jnp.ones_like(X), 0.6, 0.2, key=KEY)
    )


def test_what_does_not_go_together():
    with pytest.raises(ValueError, match="alpha: expected no alpha beside a law"):
        quantal.jax.dilute(X, law(0.3, 0.7), 0.7, key=KEY)
    with pytest.raises(ValueError, match="rate: expected a law made with shared_p=True"):
        in_function(law(0.3, 0.7), p_broadcast_dims=0)
    with pytest.raises(ValueError, match="rate: expected a law made with shared_p=False"):
        in_function(law(0.3, 0.7, shared_p=True))
    with pytest.raises(TypeError, match=r"alpha.*no default"):
        law(0.3)


def test_a_new_float_in_eager_code_compiles_nothing_and_stays_bounded(monkeypatch):
    traces = 0
    draw = _coefficients.UnitArrays.draw

    def counted(self, *args):
        nonlocal traces
        traces += 1
        return draw(self, *args)

    monkeypatch.setattr(_coefficients.UnitArrays, "draw", counted)
    x = jnp.ones((3, 17))
    for i in range(5):
        quantal.jax.dilute(x, 0.3, 0.7 + i / 100, key=KEY)
    assert traces == 1
    kept = _coefficients.table_on_device.cache_info()
    assert kept.currsize <= kept.maxsize <= 64
