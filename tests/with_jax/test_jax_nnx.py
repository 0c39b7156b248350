"""`quantal.jax.nnx.QSD` in the place of `nnx.Dropout`."""

import math

import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

import quantal
from quantal.jax.nnx import QSD

X = jnp.ones((4, 8))


class Model(nnx.Module):
    def __init__(self, dropout, rngs):
        self.linear = nnx.Linear(8, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = dropout(rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


def native(rngs):
    return nnx.Dropout(0.5, rngs=rngs)


def diluted(rngs):
    return QSD(0.5, alpha=1.0, rngs=rngs)


def test_it_is_recognised_as_dropout():
    model = Model(diluted, nnx.Rngs(0))
    assert isinstance(model.dropout, nnx.Dropout)
    model.set_attributes(nnx.Dropout, deterministic=True)
    assert model.dropout.deterministic
    assert "alpha=1.0" in repr(model.dropout)


def test_train_and_eval_and_views():
    model = Model(diluted, nnx.Rngs(0))
    model.eval()
    assert model.dropout(X) is X
    model.train()
    assert bool(jnp.any(model.dropout(X) != X))
    assert nnx.view(model, deterministic=True).dropout(X) is X


def test_the_call_beats_the_constructor():
    layer = QSD(0.5, math.inf, deterministic=True, rngs=nnx.Rngs(0))
    assert layer(X) is X
    assert bool(jnp.any(layer(X, deterministic=False) != X))


def test_streams_tick_as_those_of_dropout():
    traces = 0

    @nnx.jit
    def f(layer, x, rngs=None):
        nonlocal traces
        traces += 1
        return layer(x, rngs=rngs)

    own = QSD(0.5, math.inf, rngs=nnx.Rngs(dropout=0))
    bare, rngs = QSD(0.5, math.inf), nnx.Rngs(dropout=0).fork()
    assert own.rngs.count[...] == 0
    outputs = []
    for call in (1, 2):
        y = f(own, X)
        np.testing.assert_array_equal(y, f(bare, X, rngs))
        assert own.rngs.count[...] == rngs.dropout.count[...] == call
        outputs.append(y)
    assert bool(jnp.any(outputs[0] != outputs[1]))
    assert traces == 2
    for quiet in (QSD(0.0, 1.0, rngs=nnx.Rngs(0)), QSD(1.0, 1.0, rngs=nnx.Rngs(0))):
        quiet(X)
        assert quiet.rngs.count[...] == 0
    own.eval()
    f(own, X)
    assert own.rngs.count[...] == 2


def test_the_collection_is_used():
    rngs = nnx.Rngs(other=0)
    layer = QSD(0.5, 1.0, rng_collection="other", rngs=rngs)
    assert rngs.other.count[...] == 1
    layer(X, rngs=rngs)
    assert rngs.other.count[...] == 2
    by_stream = QSD(0.5, 1.0)(X, rngs=nnx.Rngs(other=0).other)
    by_name = QSD(0.5, 1.0, rng_collection="other")(X, rngs=nnx.Rngs(other=0))
    np.testing.assert_array_equal(by_stream, by_name)


def test_a_portable_key_folds_in_the_call_count():
    layer = QSD(0.3, 0.7, rngs=quantal.key(9))
    step = nnx.jit(lambda layer, x: layer(x))
    x = np.ones((4, 8), np.float32)
    for call in range(3):
        desired = quantal.dilute(x, 0.3, 0.7, rng=quantal.key(9).fold_in(call))
        np.testing.assert_array_equal(step(layer, X), desired)


def test_errors_name_the_remedy():
    layer = QSD(0.5, 1.0)
    with pytest.raises(ValueError, match="no `rngs` argument was provided to Dropout"):
        layer(X)
    undecided = QSD(0.5, 1.0, deterministic=None)
    with pytest.raises(ValueError, match="No `deterministic` argument was provided to Dropout"):
        undecided(X)
    with pytest.raises(TypeError, match="rngs: expected"):
        layer(X, rngs=3)
    with pytest.raises(TypeError, match="rngs: expected"):
        QSD(0.5, 1.0, rngs=3)


def test_checkpoints_fit_both_ways():
    models = Model(native, nnx.Rngs(0)), Model(diluted, nnx.Rngs(1))
    states = [nnx.state(model) for model in models]
    assert jax.tree.structure(states[0]) == jax.tree.structure(states[1])
    for model, state in zip(models, reversed(states), strict=True):
        nnx.update(model, state)
        for mine, given in zip(
            jax.tree.leaves(nnx.state(model)), jax.tree.leaves(state), strict=True
        ):
            assert bool(jnp.all(mine == given))


def test_gradients_of_a_model():
    model = Model(diluted, nnx.Rngs(0))
    grads = nnx.jit(nnx.grad(lambda model, x: jnp.sum(model(x) ** 2)))(model, X)
    assert all(bool(jnp.all(jnp.isfinite(g))) for g in jax.tree.leaves(grads))
    assert model.dropout.rngs.count[...] == 1


def test_remat_draws_once():
    def run(wrap):
        layer = QSD(0.3, 0.7, rngs=nnx.Rngs(0))
        f = wrap(lambda layer, x: jnp.sum(jnp.sin(layer(x))))
        grad = nnx.grad(f, argnums=1)(layer, X)
        return grad, layer.rngs.count[...]

    (plain, ticks), (again, ticks_again) = run(lambda f: f), run(nnx.remat)
    np.testing.assert_allclose(again, plain, rtol=1e-6)
    np.testing.assert_array_equal(again == 0, plain == 0)
    assert ticks == ticks_again == 1


def test_vmap_and_scan_with_split_streams():
    layer = QSD(0.5, math.inf, rngs=nnx.Rngs(0))
    axes = nnx.StateAxes({nnx.RngState: 0, ...: None})

    @nnx.split_rngs(splits=4)
    @nnx.vmap(in_axes=(axes, 0))
    def rows(layer, x):
        return layer(x)

    y = rows(layer, jnp.ones((4, 64)))
    assert len({row.tobytes() for row in np.asarray(y)}) == 4

    @nnx.split_rngs(splits=4)
    @nnx.scan(in_axes=(axes, nnx.Carry), out_axes=(nnx.Carry, 0), length=4)
    def steps(layer, x):
        return x, layer(x)

    _, y = steps(layer, jnp.ones(64))
    assert len({row.tobytes() for row in np.asarray(y)}) == 4


def test_an_array_valued_rate_changes_without_a_retrace():
    traces = 0

    @nnx.jit
    def step(layer, x):
        nonlocal traces
        traces += 1
        return layer(x)

    layer = QSD(jnp.float32(0.1), jnp.float32(0.7), rngs=quantal.key(9))
    x = np.ones((4, 8), np.float32)
    for call, rate in enumerate(np.arange(1, 11) / 10):
        layer.rate = jnp.float32(rate)
        desired = quantal.dilute(x, float(rate), 0.7, rng=quantal.key(9).fold_in(call))
        np.testing.assert_array_equal(step(layer, X), desired)
    assert traces == 1


def test_a_new_float_is_traced_anew_and_obeyed():
    layer = QSD(0.1, 0.7, rngs=quantal.key(9))
    step = nnx.jit(lambda layer, x: layer(x))
    step(layer, X)
    layer.rate = 0.9
    desired = quantal.dilute(np.ones((4, 8), np.float32), 0.9, 0.7, rng=quantal.key(9).fold_in(1))
    np.testing.assert_array_equal(step(layer, X), desired)
