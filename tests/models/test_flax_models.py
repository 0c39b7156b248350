"""Transformers of Flax's own modules, NNX and Linen, converted and back.

The transformers library has no Flax models any more (5.0 dropped them).
"""

import jax
import numpy as np
import optax
import orbax.checkpoint
import pytest
from flax import linen as nn
from flax import nnx, serialization
from flax.training.train_state import TrainState
from jax import export
from jax import numpy as jnp

import quantal.jax.linen
import quantal.jax.nnx

KEY = jax.random.key(0)
TOKENS = jax.random.randint(KEY, (4, 6), 0, 11)
DEPTH, WIDTH = 2, 8


def cross_entropy(logits):
    return optax.softmax_cross_entropy_with_integer_labels(logits, TOKENS).mean()


class EncoderLayer(nnx.Module):
    def __init__(self, norm, rngs):
        self.norms = nnx.List([norm(WIDTH, rngs=rngs) for _ in range(2)])
        self.attention = nnx.MultiHeadAttention(
            2, WIDTH, dropout_rate=0.1, broadcast_dropout=False, decode=False,
            deterministic=False, rngs=rngs,
        )  # fmt: skip
        self.mlp = nnx.Sequential(
            nnx.Linear(WIDTH, 16, rngs=rngs), nnx.gelu, nnx.Dropout(0.2, rngs=rngs),
            nnx.Linear(16, WIDTH, rngs=rngs), nnx.Dropout(0.2, rngs=rngs),
        )  # fmt: skip
        self.dropout = nnx.Dropout(0.3, rngs=rngs)

    def __call__(self, x):
        x = x + self.dropout(self.attention(self.norms[0](x)))
        return x + self.mlp(self.norms[1](x))


class Encoder(nnx.Module):
    def __init__(self, norm, rngs):
        self.embedding = nnx.Embed(11, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.4, rngs=rngs)
        self.layers = nnx.List([EncoderLayer(norm, rngs) for _ in range(DEPTH)])
        self.head = nnx.Linear(WIDTH, 11, rngs=rngs)

    def __call__(self, tokens):
        x = self.dropout(self.embedding(tokens))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def encoder_names():
    parts = ("attention", "mlp/layers/2", "mlp/layers/4", "dropout")
    return {"dropout", *(f"layers/{i}/{part}" for i in range(DEPTH) for part in parts)}


@nnx.jit
def nnx_step(model, optimizer):
    value, grads = nnx.value_and_grad(lambda model: cross_entropy(model(TOKENS)))(model)
    optimizer.update(model, grads)
    return value


def save_and_load(source, target, folder):
    """Write the state of one NNX model with orbax, and read it into another."""

    def pure(model):
        return nnx.to_pure_dict(nnx.state(model, nnx.Not(nnx.RngKey)))

    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder, pure(source))
        checkpointer.wait_until_finished()
        restored = checkpointer.restore(folder, pure(target))
    state = nnx.state(target, nnx.Not(nnx.RngKey))
    nnx.replace_by_pure_dict(state, restored)
    nnx.update(target, state)


@pytest.mark.parametrize("norm", [nnx.LayerNorm, nnx.BatchNorm])
def test_nnx_encoder(norm, tmp_path):
    module, model, untouched = (
        quantal.jax.nnx,
        Encoder(norm, nnx.Rngs(0)),
        Encoder(norm, nnx.Rngs(0)),
    )
    assert {site.name for site in module.sites(model)} == encoder_names()
    model.eval()
    before = model(TOKENS)
    module.convert(model, lambda rate: 2 * rate)
    assert {s.name: s.alpha / s.rate for s in module.sites(model)} == dict.fromkeys(
        encoder_names(), 2
    )
    np.testing.assert_array_equal(model(TOKENS), before)
    model.train()
    assert nnx.split(module.revert(model))[0] == nnx.split(untouched)[0]
    module.convert(model, 1.0)

    optimizer = nnx.Optimizer(model, optax.adam(1e-2), wrt=nnx.Param)
    losses = [float(nnx_step(model, optimizer)) for _ in range(30)]
    assert np.mean(losses[-5:]) < np.mean(losses[:5])

    model.eval()
    statistics = nnx.to_pure_dict(nnx.state(model, nnx.BatchStat))
    with module.masks_on(model):
        assert bool(jnp.any(model(TOKENS) != model(TOKENS)))
    mean, std = module.predict_mc(model, TOKENS, 8, key=KEY)
    assert mean.shape == std.shape == (4, 6, 11)
    assert bool(jnp.all(std > 0))
    same = jax.tree.map(
        lambda a, b: bool(jnp.all(a == b)),
        statistics,
        nnx.to_pure_dict(nnx.state(model, nnx.BatchStat)),
    )
    assert jax.tree.all(same)

    trained = model(TOKENS)
    twin = module.convert(Encoder(norm, nnx.Rngs(1)), 1.0)
    native = untouched
    for i, (source, target) in enumerate([(model, native), (native, twin)]):
        save_and_load(source, target, tmp_path / str(i))
        target.eval()
        np.testing.assert_array_equal(target(TOKENS), trained)


class Layer(nn.Module):
    """One layer; in the form that nn.scan asks for."""

    @nn.compact
    def __call__(self, x, train):
        y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1)(
            nn.LayerNorm()(x), deterministic=not train
        )
        x = x + nn.Dropout(0.3)(y, deterministic=not train)
        y = nn.Dense(WIDTH)(
            nn.Dropout(0.2, deterministic=not train)(nn.gelu(nn.Dense(16)(nn.LayerNorm()(x))))
        )
        return x + nn.Dropout(0.3)(y, deterministic=not train), None


class LinenEncoder(nn.Module):
    lifted: str

    @nn.compact
    def __call__(self, tokens, train):
        x = nn.Embed(11, WIDTH)(tokens)
        x = nn.Dropout(0.4, deterministic=not train)(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        if self.lifted == "scan":
            layers = nn.scan(
                nn.remat(Layer, static_argnums=2, prevent_cse=False),
                variable_axes={"params": 0},
                split_rngs={"params": True, "dropout": True},
                in_axes=nn.broadcast,
                length=DEPTH,
            )
            x, _ = layers(name="layers")(x, train)
        else:
            for i in range(DEPTH):
                x, _ = Layer(name=f"layer_{i}")(x, train)
        return nn.Dense(11)(x)


class State(TrainState):
    batch_stats: dict


@jax.jit
def linen_step(state, key):
    def loss(params):
        logits, updated = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, TOKENS, True,
            rngs={"dropout": key}, mutable="batch_stats",
        )  # fmt: skip
        return cross_entropy(logits), updated

    (value, updated), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads, **updated), value


@pytest.mark.parametrize("lifted", ["scan", "none"])
def test_linen_encoder(lifted, tmp_path):
    module, native = quantal.jax.linen, LinenEncoder(lifted)
    variables = native.init(KEY, TOKENS, False)
    converted = module.convert(native, lambda rate: 2 * rate, KEY, TOKENS, False)
    parts = ("MultiHeadDotProductAttention_0", "Dropout_0", "Dropout_1", "Dropout_2")
    layers = ["layers"] if lifted == "scan" else [f"layer_{i}" for i in range(DEPTH)]
    names = {"Dropout_0", *(f"{layer}/{part}" for layer in layers for part in parts)}
    assert {site.name for site in module.sites(native, KEY, TOKENS, False)} == names
    found = module.sites(converted, KEY, TOKENS, False)
    assert {s.name: s.alpha / s.rate for s in found} == dict.fromkeys(names, 2)

    quiet = [model.apply(variables, TOKENS, False) for model in (native, converted)]
    np.testing.assert_array_equal(*quiet)
    shapes = jax.eval_shape(lambda: converted.init(KEY, TOKENS, False))
    assert jax.tree.structure(shapes) == jax.tree.structure(variables)
    assert module.revert(converted) == native
    assert type(module.revert(converted)) is LinenEncoder

    state = State.create(apply_fn=converted.apply, tx=optax.adam(1e-2), **variables)
    losses = []
    for key in jax.random.split(KEY, 30):
        state, value = linen_step(state, key)
        losses.append(float(value))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])

    # Trained with QSD, written to a file, read for the native model; and back.
    trained = {"params": state.params, "batch_stats": state.batch_stats}
    desired = converted.apply(trained, TOKENS, False)
    for source, target in ((trained, native), (trained, converted)):
        (tmp_path / "model.msgpack").write_bytes(serialization.to_bytes(source))
        blank = target.init(jax.random.key(1), TOKENS, False)
        loaded = serialization.from_bytes(blank, (tmp_path / "model.msgpack").read_bytes())
        np.testing.assert_array_equal(target.apply(loaded, TOKENS, False), desired)

    with module.masks_on(converted):
        drawn, updated = converted.apply(
            trained, TOKENS, False, rngs={"dropout": KEY}, mutable="batch_stats"
        )
    assert bool(jnp.any(drawn != desired))
    assert jax.tree.all(
        jax.tree.map(
            lambda a, b: bool(jnp.all(a == b)), updated["batch_stats"], trained["batch_stats"]
        )
    )
    mean, std = module.predict_mc(converted, trained, TOKENS, 8, key=KEY, train=False)
    assert mean.shape == std.shape == (4, 6, 11)
    assert bool(jnp.all(std > 0))


def lowered_for_cuda(loss, weights):
    """Whether a step of gradient descent can be lowered, with no host call in it."""
    flat, structure = jax.tree.flatten(weights)

    def step(flat, words):
        key = jax.random.wrap_key_data(words)
        grads = jax.grad(lambda flat: loss(jax.tree.unflatten(structure, flat), key))(flat)
        return [weight - grad for weight, grad in zip(flat, grads, strict=True)]

    exported = export.export(jax.jit(step), platforms=["cuda"])(flat, jax.random.key_data(KEY))
    return exported.platforms == ("cuda",) and "callback" not in exported.mlir_module()


def test_a_linen_step_lowers_for_cuda():
    model = quantal.jax.linen.convert(LinenEncoder("scan"), 1.0)
    variables = model.init(KEY, TOKENS, False)

    def loss(params, key):
        weights = variables | {"params": params}
        options = {"rngs": {"dropout": key}, "mutable": "batch_stats"}
        return cross_entropy(model.apply(weights, TOKENS, True, **options)[0])

    assert lowered_for_cuda(loss, variables["params"])


def test_an_nnx_step_lowers_for_cuda():
    model = quantal.jax.nnx.convert(Encoder(nnx.LayerNorm, nnx.Rngs(0)), 1.0)
    graphdef, params, rest = nnx.split(model, nnx.Param, ...)

    def loss(params, key):
        fresh = nnx.merge(graphdef, params, rest, copy=True)
        nnx.reseed(fresh, dropout=key)
        return cross_entropy(fresh(TOKENS))

    assert lowered_for_cuda(loss, params)
