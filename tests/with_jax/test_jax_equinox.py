"""`quantal.jax.equinox.QSD` in the place of `eqx.nn.Dropout`."""

import math

import equinox as eqx
import jax
import numpy as np
import pytest
from jax import numpy as jnp

import quantal
from quantal.jax.equinox import QSD

X = jnp.asarray(np.random.default_rng(0).standard_normal((3, 4, 5)), jnp.float32)
KEY = jax.random.key(1)


@pytest.fixture(autouse=True)
def _strict_promotion():
    with jax.numpy_dtype_promotion("strict"):
        yield


def test_alpha_inf_is_dropout():
    y = QSD(alpha=math.inf)(X, key=KEY)
    assert bool(jnp.all((y == 0) | (y == X / 0.5)))
    assert bool(jnp.any(y == 0) & jnp.any(y != 0))


def test_inference_is_found_by_name_and_the_call_beats_the_field():
    layer = QSD(0.5, 1.0)
    assert isinstance(layer, eqx.nn.Dropout)
    assert layer(X, key=KEY, inference=True) is X
    assert layer(X, inference=True) is X
    off = eqx.nn.inference_mode(layer)
    assert off.inference
    assert off(X) is X
    assert bool(jnp.any(off(X, key=KEY, inference=False) != X))
    on = eqx.tree_at(lambda d: d.inference, off, replace=False)
    assert bool(jnp.any(on(X, key=KEY) != X))
    sequence = eqx.nn.Sequential([eqx.nn.Identity(), layer])
    assert eqx.nn.inference_mode(sequence)(X) is X
    assert bool(jnp.all(sequence(X, key=KEY) == layer(X, key=jax.random.split(KEY, 2)[1])))


def test_the_old_name_of_inference():
    with pytest.warns(UserWarning, match="deterministic"):
        assert QSD(0.5, 1.0)(X, deterministic=True) is X
    with pytest.warns(UserWarning, match="deterministic"):
        layer = QSD(0.5, 1.0, deterministic=True)
    assert layer.deterministic
    assert layer(X) is X


def test_a_missing_key_raises():
    with pytest.raises(RuntimeError, match=r"key: expected .* pass key=jax\.random\.key"):
        QSD(0.5, 1.0)(X)
    assert QSD(0.0, 1.0)(X) is X
    with pytest.raises(TypeError, match="alpha: expected a number above 0"):
        QSD(0.5, True)  # the place of inference in eqx.nn.Dropout


@pytest.mark.parametrize("field", ["p", "alpha"])
def test_one_trace_over_changes_of_an_array(field):
    traces = 0

    @eqx.filter_jit
    def step(layer, x, key):
        nonlocal traces
        traces += 1
        return layer(x, key=key)

    law = {"p": 0.3, "alpha": 0.7}
    layer = QSD(**law | {field: jnp.float32(0.1)})
    for value in np.arange(1, 11) / 10:
        layer = eqx.tree_at(lambda d: getattr(d, field), layer, jnp.float32(value))
        changed = law | {field: float(value)}
        desired = quantal.dilute(np.asarray(X), changed["p"], changed["alpha"], rng=quantal.key(1))
        np.testing.assert_array_equal(step(layer, X, KEY), desired)
    assert traces == 1


def test_changing_a_float_is_obeyed():
    layer = eqx.tree_at(lambda d: d.p, QSD(0.5, 1.0), 0.0)
    assert layer(X) is X
    step = eqx.filter_jit(lambda layer, x: layer(x, key=KEY))
    for p in (0.2, 0.6):
        layer = eqx.tree_at(lambda d: d.p, layer, p)
        np.testing.assert_array_equal(step(layer, X), quantal.jax.dilute(X, p, 1.0, key=KEY))


def test_checkpoints_fit_those_of_dropout_both_ways(tmp_path):
    def model(dropout, seed):
        linear = eqx.nn.Linear(4, 4, key=jax.random.key(seed))
        return eqx.nn.Sequential([linear, dropout, eqx.nn.Linear(4, 4, key=KEY)])

    native, own = model(eqx.nn.Dropout(0.3), 1), model(QSD(0.5, 1.0), 2)
    assert len(jax.tree.leaves(native)) == len(jax.tree.leaves(own))
    for source, target in ((native, own), (own, native), (own, model(QSD(0.2, 0.7), 3))):
        eqx.tree_serialise_leaves(tmp_path / "model.eqx", source)
        loaded = eqx.tree_deserialise_leaves(tmp_path / "model.eqx", target)
        assert loaded[1].p == source[1].p
        assert getattr(loaded[1], "alpha", None) == getattr(target[1], "alpha", None)
        assert bool(jnp.all(loaded[0].weight == source[0].weight))


def test_alpha_is_a_leaf_as_an_array_alone():
    assert jax.tree.leaves(QSD(0.5, 1.0)) == jax.tree.leaves(eqx.nn.Dropout(0.5)) == [0.5, False]
    assert len(jax.tree.leaves(QSD(0.5, jnp.float32(1.0)))) == 3
    layer = QSD(0.5, 1.0)
    for alpha in (2.0, jnp.float32(2.0)):
        assert eqx.tree_at(lambda d: d.alpha, layer, alpha).alpha == 2.0
    assert jax.tree.structure(layer) != jax.tree.structure(QSD(0.5, 2.0))  # so it is traced anew


def test_rate_is_another_name_of_p():
    layer = QSD(rate=0.3, alpha=1.0)
    assert layer.p == layer.rate == 0.3
    with pytest.raises(ValueError, match="rate: expected p or rate, not both"):
        QSD(0.3, 1.0, rate=0.3)
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
        QSD(rate=1.5, alpha=1.0)


def test_a_model_with_a_key_for_each_example():
    model = eqx.nn.Sequential([eqx.nn.Linear(5, 5, key=KEY), QSD(0.3, 0.7)])
    x, keys = X.reshape(12, 5), jax.random.split(KEY, 12)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(model, x, keys):
        return jnp.sum(jax.vmap(lambda x, key: model(x, key=key))(x, keys))

    value, grads = loss(model, x, keys)
    keys = jax.vmap(jax.random.split)(keys)[:, 1]
    rows = [quantal.jax.dilute(model[0](v), 0.3, 0.7, key=k) for v, k in zip(x, keys, strict=True)]
    np.testing.assert_allclose(value, jnp.sum(jnp.stack(rows)), rtol=1e-5)
    assert bool(jnp.all(jnp.isfinite(grads[0].weight)))


def test_checkpoint_gives_the_same_gradient():
    layer = QSD(0.3, 0.7)
    f = lambda x: jnp.sum(jnp.sin(layer(x, key=KEY)))  # noqa: E731
    plain, again = jax.grad(f)(X), jax.grad(eqx.filter_checkpoint(f))(X)
    np.testing.assert_array_equal(plain == 0, again == 0)
    np.testing.assert_allclose(plain, again, rtol=1e-6)
