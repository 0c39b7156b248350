"""`convert`, `revert`, `sites`, `masks_on` and `predict_mc` for Flax NNX."""

import copy
import inspect
import math
import pickle

import jax
import numpy as np
import optax
import orbax.checkpoint
import pytest
from flax import nnx
from jax import numpy as jnp

import quantal
from quantal.jax.nnx import QSD, convert, masks_on, predict_mc, revert, sites
from quantal.sites import UnreachedWarning

X = jnp.ones((4, 8))
WORDS = jax.random.normal(jax.random.key(1), (2, 5, 8))


class Block(nnx.Module):
    def __init__(self, rate, rngs):
        self.linear = nnx.Linear(8, 8, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.dropout = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.norm(self.linear(x)))


class Model(nnx.Module):
    """Dropout at every kind of place: nested, in containers, shared, with options of its own."""

    def __init__(self, rngs):
        self.blocks = nnx.List([Block(0.1, rngs), Block(0.2, rngs)])
        self.by_name = nnx.Dict(out=nnx.Dropout(0.0, rngs=rngs))
        self.head = nnx.Sequential(nnx.Linear(8, 8, rngs=rngs), nnx.Dropout(0.4, rngs=rngs))
        self.again = self.head.layers[1]
        self.maps = nnx.Dropout(
            0.5, broadcast_dims=(0,), rng_collection="masks", deterministic=None, rngs=rngs
        )

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return self.maps(self.again(self.head(self.by_name["out"](x))), deterministic=True)


def model():
    return Model(nnx.Rngs(0))


def attention(**options):
    options = {"dropout_rate": 0.5, "decode": False, "deterministic": False} | options
    return nnx.MultiHeadAttention(2, 8, rngs=nnx.Rngs(0), **options)


def test_every_dropout_is_swapped_in_place_with_its_options():
    m = model()
    maps, shared = m.maps, m.head.layers[1]
    assert convert(m, lambda rate: 10 * rate + 1) is m
    assert {s.name: (s.kind, s.rate, s.alpha) for s in sites(m)} == {
        "again": ("QSD", 0.4, 5.0),
        "blocks/0/dropout": ("QSD", 0.1, 2.0),
        "blocks/1/dropout": ("QSD", 0.2, 3.0),
        "by_name/out": ("QSD", 0.0, 1.0),
        "maps": ("QSD", 0.5, 6.0),
    }
    assert m.maps is maps
    assert m.again is m.head.layers[1] is shared
    assert (maps.broadcast_dims, maps.rng_collection, maps.deterministic) == ((0,), "masks", None)
    key = jax.random.key(5)
    desired = quantal.jax.dilute(X, 0.5, 6.0, key=key, broadcast_dims=(0,))
    np.testing.assert_array_equal(maps(X, deterministic=False, rngs=key), desired)


def test_a_model_that_is_itself_dropout():
    layer = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    assert isinstance(convert(layer, 1.0), QSD)
    assert sites(layer)[0].name == ""
    assert type(revert(layer)) is nnx.Dropout


def test_outputs_in_evaluation_are_the_same_to_the_bit():
    m = model()
    m.eval()
    before = m(X)
    np.testing.assert_array_equal(convert(m, 1.0)(X), before)
    np.testing.assert_array_equal(revert(m)(X), before)


def test_state_is_that_of_dropout_and_revert_restores_the_graph():
    m, untouched = model(), model()
    before = nnx.split(untouched)
    converted = nnx.split(convert(m, 1.0))
    assert jax.tree.structure(converted[1]) == jax.tree.structure(before[1])
    assert converted[0] != before[0]
    assert nnx.split(revert(m))[0] == before[0]


def test_revert_keeps_what_has_happened_meanwhile():
    m = convert(model(), 1.0)
    m.maps.rate = 0.25
    m.eval()
    m.head.layers[0].kernel[...] += 1
    trained = m.head.layers[0].kernel[...]
    own = QSD(0.3, 2.0)
    m.own = own
    revert(m)
    assert type(m.maps) is nnx.Dropout
    assert (m.maps.rate, m.again.deterministic) == (0.25, True)
    np.testing.assert_array_equal(m.head.layers[0].kernel[...], trained)
    assert m.own is own
    assert isinstance(own, QSD)


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, nnx.clone, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_copies_of_a_converted_model_can_be_reverted(copied):
    twin = copied(convert(model(), 1.0))
    assert all(site.alpha == 1.0 for site in sites(twin))
    assert nnx.split(revert(twin))[0] == nnx.split(model())[0]


def test_checkpoints_fit_both_ways(tmp_path):
    native, converted = model(), convert(Model(nnx.Rngs(1)), 1.0)
    with orbax.checkpoint.StandardCheckpointer() as checkpointer:
        for i, (source, target) in enumerate([(native, converted), (converted, native)]):
            source.head.layers[0].kernel[...] += 1
            states = [nnx.to_pure_dict(nnx.state(m, nnx.Not(nnx.RngKey))) for m in (source, target)]
            checkpointer.save(tmp_path / str(i), states[0])
            checkpointer.wait_until_finished()
            state = nnx.state(target, nnx.Not(nnx.RngKey))
            nnx.replace_by_pure_dict(state, checkpointer.restore(tmp_path / str(i), states[1]))
            nnx.update(target, state)
            source.eval(), target.eval()
            np.testing.assert_array_equal(source(X), target(X))


def test_a_function_compiled_before_is_traced_anew():
    layer = nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=quantal.key(0).fold_in(0).word0))
    step = nnx.jit(lambda layer, x: layer(x))
    assert set(np.unique(step(layer, X))) == {0.0, 2.0}
    convert(layer, 1.0)
    assert len(np.unique(step(layer, X))) > 2
    assert set(np.unique(step(revert(layer), X))) == {0.0, 2.0}


def test_attention_weights_are_diluted():
    m = attention()
    m.eval()
    before = m(WORDS)
    convert(m, 1.0)
    np.testing.assert_array_equal(m(WORDS), before)
    assert [(s.kind, s.rate, s.alpha) for s in sites(m)] == [("QSD", 0.5, 1.0)]
    m.train()
    assert bool(jnp.any(m(WORDS) != before))
    assert m.rngs.count[...] == 1
    revert(m)
    assert m.attention_fn is nnx.dot_product_attention


@pytest.mark.parametrize("broadcast", [True, False])
@pytest.mark.parametrize("kv_heads", [1, 4])
def test_attention_is_that_of_the_definition(broadcast, kv_heads):
    m = attention(num_kv_heads=None, broadcast_dropout=broadcast)
    attend, key = convert(m, 0.7).attention_fn, jax.random.key(3)
    q = jax.random.normal(jax.random.key(0), (2, 5, 4, 8))
    k, v = (jax.random.normal(jax.random.key(i), (2, 6, kv_heads, 8)) for i in (1, 2))
    mask = jax.random.bernoulli(jax.random.key(4), 0.8, (2, 4, 5, 6)).at[..., 0].set(True)
    k_all, v_all = (jnp.repeat(a, 4 // kv_heads, axis=2) for a in (k, v))
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k_all) / math.sqrt(8)
    weights = jax.nn.softmax(jnp.where(mask, logits, -jnp.inf))
    shared = (0, 1) if broadcast else ()
    weights = quantal.jax.dilute(weights, 0.5, 0.7, key=key, broadcast_dims=shared)
    desired = jnp.einsum("bhqk,bkhd->bqhd", weights, v_all)
    got = attend(q, k, v, mask=mask, dropout_rng=key, dropout_rate=0.5, broadcast_dropout=broadcast)
    np.testing.assert_allclose(got, desired, rtol=1e-5, atol=1e-6)


def test_attention_sows_its_weights_and_is_causal_as_before():
    m = attention()
    several = [{"sow_weights": True}]
    if "is_causal" in inspect.signature(nnx.MultiHeadAttention.__call__).parameters:
        several.append({"is_causal": True})  # since Flax 0.12.7
    for options in several:
        m.eval()
        before = nnx.capture(m, nnx.Intermediate)(WORDS, **options)
        convert(m, 1.0)
        after = nnx.capture(m, nnx.Intermediate)(WORDS, **options)
        assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), before, after))
        m.train()
        drawn = nnx.capture(m, nnx.Intermediate)(WORDS, **options)
        assert jax.tree.structure(drawn) == jax.tree.structure(after)
        revert(m)


class Own(nnx.Dropout):
    def __call__(self, x, **kwargs):
        return x


class Literal(nnx.Module):
    def __init__(self, rngs):
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, q, key):
        weights = nnx.dot_product_attention(q, q, q, dropout_rate=0.3, dropout_rng=key)
        return nnx.Dropout(rate=0.2)(self.dropout(weights), rngs=key)

    def without(self, q):
        return nnx.dot_product_attention(q, q, q, dropout_rate=0.0)


def test_what_is_out_of_reach_is_named_and_nothing_is_changed():
    m = nnx.List([Literal(nnx.Rngs(0)), Own(0.2), attention(attention_fn=lambda q, k, v, **_: v)])
    before = nnx.split(m)[0]
    reasons = {
        ("0", "dot_product_attention", 0.3): "Literal.__call__",
        ("0", "Dropout", 0.2): "Literal.__call__",
        ("1", "Own", 0.2): "a class of its own",
        ("2", "MultiHeadAttention", 0.5): "attention_fn",
    }
    unreached = {(s.name, s.kind, s.rate): s.unreached for s in sites(m) if s.unreached}
    assert unreached.keys() == reasons.keys()
    assert all(reasons[place] in unreached[place] for place in reasons)
    with pytest.raises(ValueError, match="dropout that convert cannot swap") as raised:
        convert(m, 1.0)
    assert all(f"  {name} ({kind}): " in str(raised.value) for name, kind, _ in reasons)
    assert nnx.split(m)[0] == before
    with pytest.warns(UnreachedWarning, match="cannot swap"):
        convert(m, 1.0, strict=False)
    assert isinstance(m[0].dropout, QSD)
    assert type(m[1]) is Own


def test_choices():
    m = convert(
        model(), 1.0, include=["blocks/*", "maps"], exclude=lambda name, layer: layer.rate == 0.2
    )
    assert {s.name for s in sites(m) if s.kind == "QSD"} == {"blocks/0/dropout", "maps"}
    convert(m, 2.0)  # the rest
    assert {s.alpha for s in sites(m)} == {1.0, 2.0}
    with pytest.raises(ValueError, match="no dropout to swap"):
        convert(m, 3.0)
    with pytest.raises(ValueError, match="no dropout to swap"):
        convert(nnx.Linear(2, 2, rngs=nnx.Rngs(0)), 1.0)


def test_a_bad_alpha_changes_nothing():
    m = model()
    with pytest.raises(ValueError, match="alpha: expected"):
        convert(m, lambda rate: rate - 0.05)
    assert all(site.alpha is None for site in sites(m))
    with pytest.raises(ValueError, match="alpha: expected"):
        convert(m, 0.0)


def test_masks_on_touches_dilution_alone():
    m = model()
    convert(m, 1.0, exclude="blocks/0/*")
    m.eval()
    m.maps.deterministic = None
    statistics = jax.tree.map(jnp.copy, nnx.state(m, nnx.BatchStat))
    flags = nnx.split(m)[0]

    def fail():
        with masks_on(m) as same:
            assert same is m
            assert m.again.deterministic is False
            assert m.blocks[0].dropout.deterministic is True
            assert m.blocks[0].norm.use_running_average is True
            assert bool(jnp.any(m(X) != m(X)))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert nnx.split(m)[0] == flags
    assert jax.tree.all(
        jax.tree.map(lambda a, b: bool(jnp.all(a == b)), statistics, nnx.state(m, nnx.BatchStat))
    )
    with masks_on(m, native=True):
        assert m.blocks[0].dropout.deterministic is False


def test_native_dropout_is_on_also_where_it_cannot_be_swapped():
    class Drawing(nnx.Dropout):
        def __call__(self, x, **kwargs):
            return super().__call__(x, **kwargs)

    def attend(*args, **kwargs):
        return nnx.dot_product_attention(*args, **kwargs)

    rngs = nnx.Rngs(0)
    attention = nnx.MultiHeadAttention(
        2, 8, dropout_rate=0.5, attention_fn=attend, decode=False, rngs=rngs
    )
    for layer in Drawing(0.5, rngs=rngs), attention:
        layer.eval()
        x = jax.random.normal(jax.random.key(0), (2, 5, 8))
        before = layer(x)
        with masks_on(layer, native=True):
            assert not jnp.array_equal(layer(x), before)
        assert jnp.array_equal(layer(x), before)
        with pytest.raises(ValueError, match="expected one with QSD"), masks_on(layer):
            pass


def test_predictions():
    layer = convert(nnx.Dropout(0.5, deterministic=True, rngs=nnx.Rngs(0)), 1.0)
    both = nnx.List([layer])
    law, n, key = quantal.Dilution(0.5, 1.0), 4000, jax.random.key(0)

    def call(model, x, rngs):
        return {"y": model[0](x), "rest": (jnp.argmax(x),)}

    graphdef, state = nnx.split(both)
    prediction = predict_mc(both, X, n, key=key, call=call)
    assert prediction.mean["y"].shape == X.shape
    error = 4 / math.sqrt(n * X.size)  # four standard errors, both of them
    assert abs(prediction.mean["y"].mean() - law.mean) < error * law.std
    assert abs((prediction.std["y"] ** 2).mean() - law.var) < error * math.sqrt(law.moment(4))
    assert prediction.std["rest"][0] == 0
    again = predict_mc(both, X, n, key=quantal.key(0), call=call)
    np.testing.assert_array_equal(again.mean["y"], prediction.mean["y"])
    assert nnx.split(both)[0] == graphdef
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), state, nnx.state(both)))


def test_predictions_are_the_moments_of_the_draws():
    draws = []

    def call(model, x, rngs):
        y = model(x, rngs=rngs)
        jax.debug.callback(lambda y: draws.append(np.asarray(y)), y)
        return y

    layer = QSD(0.5, 1.0, deterministic=True)  # with no stream of its own
    mean, std = jax.block_until_ready(predict_mc(layer, X, 7, key=jax.random.key(0), call=call))
    jax.effects_barrier()
    assert len(draws) == 7
    np.testing.assert_allclose(mean, np.mean(draws, axis=0), rtol=1e-5)
    np.testing.assert_allclose(std, np.std(draws, axis=0, ddof=1), rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="n: expected an integer of at least 2"):
        predict_mc(layer, X, 1, key=jax.random.key(0))
    with pytest.raises(TypeError, match="key: expected a JAX key"):
        predict_mc(layer, X, 2, key=None)


def test_scanned_layers():
    @nnx.split_rngs(splits=3)
    @nnx.vmap(in_axes=0, out_axes=0)
    def make(rngs):
        return Block(0.5, rngs)

    stack = convert(make(nnx.Rngs(0)), 1.0)

    @nnx.jit
    @nnx.scan(in_axes=(0, nnx.Carry), out_axes=nnx.Carry)
    def forward(block, x):
        return block(x)

    x = jax.random.normal(jax.random.key(0), (4, 8))
    first, second = forward(stack, x), forward(stack, x)
    assert bool(jnp.any(first != second))
    stack.eval()
    before = forward(revert(stack), x)
    np.testing.assert_array_equal(forward(convert(stack, 1.0), x), before)

    def call(model, x, rngs):
        return forward(model, x)

    assert bool(jnp.any(predict_mc(stack, x, 3, key=jax.random.key(0), call=call).std > 0))


def test_training_steps():
    m = convert(model(), 1.0)
    m.train()
    optimizer = nnx.Optimizer(m, optax.adam(1e-2), wrt=nnx.Param)

    @nnx.jit
    def step(m, optimizer, x):
        loss, grads = nnx.value_and_grad(lambda m: jnp.mean((m(x) - 1) ** 2))(m)
        optimizer.update(m, grads)
        return loss

    x = jax.random.normal(jax.random.key(0), (16, 8))
    losses = [float(step(m, optimizer, x)) for _ in range(20)]
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_the_mean_gain_is_that_of_the_layer_s_own_law():
    layer = QSD(0.5, 1.0, unit_mean=True, rngs=nnx.Rngs(0))
    assert [site.mean_gain for site in sites(nnx.Sequential(layer))] == [1]
