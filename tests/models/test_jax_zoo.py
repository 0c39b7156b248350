"""Families of JAX models, each converted, proved, trained, and back.

For every family: evaluation is the same to the bit, a training pass has no native draw that is not
named, the proof says what a count of ``jax.random.bernoulli`` says, weights go both ways, and
`revert` gives the model that was.
"""

import functools

import equinox as eqx
import haiku as hk
import jax
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax import nnx
from jax import numpy as jnp

import quantal.jax.equinox
import quantal.jax.haiku
import quantal.jax.linen
import quantal.jax.nnx

KEY = jax.random.key(0)
TOKENS = jax.random.randint(KEY, (3, 6), 0, 11)
IMAGES = jax.random.normal(KEY, (3, 8, 8, 2))
SERIES = jax.random.normal(KEY, (3, 6, 8))
WIDTH = 8


def drop_path(x, rate, key):
    """Stochastic depth: a branch is dropped for an example as a whole."""
    kept = jax.random.bernoulli(key, 1 - rate, (x.shape[0],) + (1,) * (x.ndim - 1))
    return x * kept / (1 - rate)


@pytest.fixture
def native_masks(monkeypatch):
    """The calls of ``jax.random.bernoulli``."""
    calls, native = [], jax.random.bernoulli
    monkeypatch.setattr(
        jax.random, "bernoulli", lambda *a, **k: (calls.append(a), native(*a, **k))[1]
    )
    return calls


def same(one, other):
    return jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), one, other))


# --- NNX -----------------------------------------------------------------------------------------


class Mixer(nnx.Module):
    """An MLP-mixer; with stochastic depth, if asked for."""

    def __init__(self, rngs, path_rate=0.0):
        self.tokens = nnx.Linear(6, 6, rngs=rngs)
        self.channels = nnx.Linear(WIDTH, WIDTH, rngs=rngs)
        self.dropout, self.norm = nnx.Dropout(0.2, rngs=rngs), nnx.LayerNorm(WIDTH, rngs=rngs)
        self.rngs, self.path_rate, self.deterministic = rngs.fork(), path_rate, False

    def __call__(self, x):
        y = self.dropout(self.tokens(self.norm(x).swapaxes(1, 2)).swapaxes(1, 2))
        if self.path_rate and not self.deterministic:
            y = drop_path(y, self.path_rate, self.rngs.dropout())
        return self.dropout(self.channels(x + y))


class Recurrent(nnx.Module):
    """A recurrent network with variational dropout, shared along the time axis."""

    def __init__(self, rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(WIDTH, WIDTH, rngs=rngs))
        self.dropout = nnx.Dropout(0.3, broadcast_dims=(1,), rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.rnn(self.dropout(x)))


class Convolutional(nnx.Module):
    """A convolutional network that drops whole feature maps, and normalises batches."""

    def __init__(self, rngs):
        self.conv = nnx.Conv(2, WIDTH, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(WIDTH, rngs=rngs)
        self.maps = nnx.Dropout(0.3, broadcast_dims=(1, 2), rngs=rngs)
        self.head = nnx.Sequential(
            nnx.Linear(WIDTH, WIDTH, rngs=rngs), nnx.gelu, nnx.Dropout(0.5, rngs=rngs)
        )

    def __call__(self, x):
        return self.head(self.maps(nnx.relu(self.norm(self.conv(x)))).mean((1, 2)))


# One for all models: no two partials are equal.
ATTEND = functools.partial(nnx.dot_product_attention, precision="highest")


class Decoder(nnx.Module):
    """A causal transformer, its attention function with options bound to it."""

    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(
            2, WIDTH, dropout_rate=0.1, decode=False, attention_fn=ATTEND, rngs=rngs
        )
        self.cross = nnx.MultiHeadAttention(2, WIDTH, dropout_rate=0.2, decode=False, rngs=rngs)
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, x):
        x = x + self.dropout(self.attention(x, mask=nnx.make_causal_mask(x[..., 0])))
        return x + self.dropout(self.cross(x, x + 1))


NNX = {
    "mixer": (Mixer, SERIES, set()),
    "stochastic depth": (functools.partial(Mixer, path_rate=0.3), SERIES, {"bernoulli"}),
    "recurrent": (Recurrent, SERIES, set()),
    "convolutional": (Convolutional, IMAGES, set()),
    "decoder": (Decoder, SERIES, set()),
}


@pytest.mark.parametrize("family", NNX)
def test_nnx(family, native_masks):
    make, x, named = NNX[family]
    qsd, model, twin = quantal.jax.nnx, make(nnx.Rngs(0)), make(nnx.Rngs(0))
    model.eval(), twin.eval()
    before = twin(x)
    leave = "test_jax_zoo.py:*"
    qsd.convert(model, lambda rate: 2 * rate, example=x, exclude=leave)
    np.testing.assert_array_equal(model(x), before)
    proof = qsd.sites(model, example=x)
    assert {site.kind for site in proof if site.alpha is None} == named
    assert all(site.unreached for site in proof if site.alpha is None)

    model.train()
    native_masks.clear()
    model(x)
    assert bool(native_masks) == bool(named)

    optimizer = nnx.Optimizer(model, optax.sgd(1e-2), wrt=nnx.Param)
    start = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    grads = nnx.jit(nnx.grad(lambda model: jnp.mean(model(x) ** 2)))(model)
    optimizer.update(model, grads)
    assert not same(start, nnx.to_pure_dict(nnx.state(model, nnx.Param)))

    model.eval()
    trained = model(x)
    nnx.update(twin, nnx.state(model))  # weights trained with QSD in a model that has none
    np.testing.assert_array_equal(twin(x), trained)
    qsd.revert(model)
    np.testing.assert_array_equal(model(x), trained)
    assert nnx.split(model)[0] == nnx.split(twin)[0]


# --- Linen ---------------------------------------------------------------------------------------


class Bert(nn.Module):
    layers: int = 2

    @nn.compact
    def __call__(self, tokens, train):
        x = nn.Embed(11, WIDTH)(tokens)
        x = nn.Dropout(0.1, deterministic=not train)(nn.LayerNorm()(x))
        for _ in range(self.layers):
            y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1)(x, deterministic=not train)
            x = nn.LayerNorm()(x + nn.Dropout(0.2)(y, deterministic=not train))
            y = nn.Dense(WIDTH)(nn.gelu(nn.Dense(16)(x)))
            x = nn.LayerNorm()(x + nn.Dropout(0.2)(y, deterministic=not train))
        return x


class Residual(nn.Module):
    """A residual network with stochastic depth."""

    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(WIDTH, (3, 3))(x)
        y = nn.BatchNorm(use_running_average=not train)(nn.Conv(WIDTH, (3, 3))(x))
        if train:
            y = drop_path(y, 0.2, self.make_rng("dropout"))
        x = nn.Dropout(0.3, broadcast_dims=(1, 2))(nn.relu(x + y), deterministic=not train)
        return nn.Dropout(0.5, deterministic=not train)(x.mean((1, 2)))


class Scanned(nn.Module):
    """A stack of layers in one scan, recomputed backwards."""

    @nn.compact
    def __call__(self, x, train):
        def body(layer, x, _):
            return layer(x, train), None

        axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True, "dropout": True}}
        return nn.scan(nn.remat(body), length=2, **axes)(ScannedLayer(), x, None)[0]


class ScannedLayer(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return x + nn.Dropout(0.2)(nn.Dense(WIDTH)(nn.LayerNorm()(x)), deterministic=not train)


class LSTM(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.RNN(nn.OptimizedLSTMCell(WIDTH))(x)
        return nn.Dropout(0.3, broadcast_dims=(1,), deterministic=not train)(x)


LINEN = {
    "bert": (Bert(), TOKENS, set()),
    "residual": (Residual(), IMAGES, {"bernoulli"}),
    "scanned": (Scanned(), SERIES, set()),
    "lstm": (LSTM(), SERIES, set()),
}


@pytest.mark.parametrize("family", LINEN)
def test_linen(family, native_masks):
    model, x, named = LINEN[family]
    qsd = quantal.jax.linen
    variables = model.init(KEY, x, False)
    converted = qsd.convert(
        model, lambda rate: 2 * rate, example=(x, True), exclude="test_jax_zoo.py:*"
    )
    np.testing.assert_array_equal(
        converted.apply(variables, x, False), model.apply(variables, x, False)
    )
    proof = qsd.sites(converted, example=(x, True))
    assert {site.kind for site in proof if site.alpha is None} == named
    assert all(site.unreached for site in proof if site.alpha is None)

    def loss(params):
        state = {**variables, "params": params}
        y, _ = converted.apply(state, x, True, rngs={"dropout": KEY}, mutable="batch_stats")
        return jnp.mean(y**2)

    native_masks.clear()
    jax.eval_shape(loss, variables["params"])
    assert bool(native_masks) == bool(named)
    grads = jax.jit(jax.grad(loss))(variables["params"])
    params = jax.tree.map(lambda p, g: p - 1e-2 * g, variables["params"], grads)
    assert not same(params, variables["params"])
    assert jax.tree.structure(converted.init(KEY, x, False)) == jax.tree.structure(variables)
    assert qsd.revert(converted) == model


# --- Equinox -------------------------------------------------------------------------------------


class Perceptron(eqx.Module):
    layers: list

    def __init__(self, key):
        keys = jax.random.split(key, 3)
        self.layers = [
            (eqx.nn.Linear(WIDTH, WIDTH, key=key), eqx.nn.Dropout(rate))
            for key, rate in zip(keys, (0.1, 0.2, 0.5), strict=True)
        ]

    def __call__(self, x, *, key=None):
        for linear, dropout in self.layers:
            key, own = (None, None) if key is None else jax.random.split(key)
            x = dropout(jax.nn.relu(jax.vmap(linear)(x)), key=own)
        return x


class EquinoxEncoder(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    dropout: eqx.nn.Dropout
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.attention = eqx.nn.MultiheadAttention(2, WIDTH, dropout_p=0.1, key=key)
        self.dropout = eqx.nn.Dropout(jnp.float32(0.25))
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 16, 1, key=key)

    def __call__(self, x, *, key=None):
        keys = [None] * 2 if key is None else jax.random.split(key)
        x = x + self.attention(x, x, x, key=keys[0])
        return x + self.dropout(jax.vmap(self.mlp)(x), key=keys[1])


class EquinoxGRU(eqx.Module):
    cell: eqx.nn.GRUCell
    dropout: eqx.nn.Dropout

    def __init__(self, key):
        self.cell, self.dropout = eqx.nn.GRUCell(WIDTH, WIDTH, key=key), eqx.nn.Dropout(0.3)

    def __call__(self, x, *, key=None):
        def step(state, item):
            x, key = item
            state = self.cell(self.dropout(x, key=key), state)
            return state, state

        keys = None if key is None else jax.random.split(key, len(x))
        return jax.lax.scan(step, jnp.zeros(WIDTH), (x, keys))[1]


class StochasticDepth(Perceptron):
    def __call__(self, x, *, key=None):
        y = super().__call__(x, key=key)
        return x + y if key is None else x + drop_path(y, 0.2, key)


EQUINOX = {
    "perceptron": (Perceptron, set()),
    "encoder": (EquinoxEncoder, set()),
    "gru": (EquinoxGRU, set()),
    "stochastic depth": (StochasticDepth, {"bernoulli"}),
}


@pytest.mark.parametrize("family", EQUINOX)
def test_equinox(family, native_masks, tmp_path):
    make, named = EQUINOX[family]
    qsd, model, x = quantal.jax.equinox, make(KEY), SERIES[0]
    converted = qsd.convert(model, lambda rate: 2 * rate, example=x, exclude="test_jax_zoo.py:*")
    calm = eqx.nn.inference_mode
    np.testing.assert_array_equal(calm(converted)(x), calm(model)(x))
    proof = qsd.sites(converted, example=lambda model: model(x, key=KEY))
    assert {site.kind for site in proof if site.alpha is None} == named
    native_masks.clear()
    converted(x, key=KEY)
    assert bool(native_masks) == bool(named)

    grads = eqx.filter_jit(eqx.filter_grad(lambda model: jnp.mean(model(x, key=KEY) ** 2)))(
        converted
    )
    trained = eqx.apply_updates(converted, jax.tree.map(lambda g: -1e-2 * g, grads))
    assert not eqx.tree_equal(trained, converted)
    for source, target in ((trained, model), (qsd.revert(trained), converted)):
        eqx.tree_serialise_leaves(tmp_path / "model.eqx", source)
        loaded = eqx.tree_deserialise_leaves(tmp_path / "model.eqx", target)
        np.testing.assert_array_equal(calm(loaded)(x), calm(trained)(x))
    assert eqx.tree_equal(qsd.revert(converted), model)


# --- Haiku ---------------------------------------------------------------------------------------


def haiku_mlp(x, train):
    return hk.nets.MLP([16, WIDTH])(x, *((0.3, hk.next_rng_key()) if train else ()))


def haiku_transformer(x, train):
    rate = 0.2 if train else 0.0
    y = hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x)
    x = x + hk.dropout(hk.next_rng_key(), rate, y)
    return x + hk.dropout(hk.next_rng_key(), rate, hk.nets.MLP([16, WIDTH])(x))


def haiku_residual(x, train):
    x = hk.Conv2D(WIDTH, 3)(x)
    y = hk.BatchNorm(True, True, 0.9)(hk.Conv2D(WIDTH, 3)(x), train)
    if train:
        y = drop_path(y, 0.2, hk.next_rng_key())
        y = hk.dropout(hk.next_rng_key(), 0.3, y, broadcast_dims=(1, 2))
    return jax.nn.relu(x + y).mean((1, 2))


HAIKU = {
    "mlp": (haiku_mlp, SERIES, set()),
    "transformer": (haiku_transformer, SERIES, set()),
    "residual": (haiku_residual, IMAGES, {"bernoulli"}),
}


@pytest.mark.parametrize("family", HAIKU)
def test_haiku(family, native_masks):
    function, x, named = HAIKU[family]
    qsd, model, rng = quantal.jax.haiku, hk.transform_with_state(function), jax.random.PRNGKey(0)
    params, state = model.init(rng, x, True)
    converted = qsd.convert(
        model, lambda rate: 2 * rate + 0.1, example=(x, True), exclude="test_jax_zoo.py:*"
    )
    for one, other in zip(
        converted.apply(params, state, rng, x, False), model.apply(params, state, rng, x, False),
        strict=True,
    ):  # fmt: skip
        assert same(one, other)
    proof = qsd.sites(converted, example=(x, True))
    assert {site.kind for site in proof if site.alpha is None} == named
    native_masks.clear()
    converted.apply(params, state, rng, x, True)
    assert bool(native_masks) == bool(named)

    def loss(params):
        return jnp.mean(converted.apply(params, state, rng, x, True)[0] ** 2)

    grads = jax.jit(jax.grad(loss))(params)
    assert any(bool(jnp.any(g != 0)) for g in jax.tree.leaves(grads))
    assert jax.tree.structure(converted.init(rng, x, True)) == jax.tree.structure((params, state))
    assert qsd.revert(converted) == model
