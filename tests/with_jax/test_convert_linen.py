"""`convert`, `revert`, `sites`, `masks_on`, `predict_mc` and `intercept` for Flax Linen."""

import copy
import functools
import math
import pickle
import warnings

import jax
import numpy as np
import optax
import pytest
from flax import linen as nn
from flax.training.train_state import TrainState
from jax import numpy as jnp

import quantal
from quantal.jax.linen import QSD, convert, intercept, masks_on, predict_mc, revert, sites
from quantal.sites import UnreachedWarning

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (2, 5, 8))
AXES = {"variable_axes": {"params": 0}, "split_rngs": {"params": True, "dropout": True}}


class Block(nn.Module):
    rate: float = 0.1

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.MultiHeadDotProductAttention(2, dropout_rate=0.5)(x, deterministic=not train)
        return nn.Dropout(self.rate)(x, not train)


class Model(nn.Module):
    def setup(self):
        self.blocks = [Block(0.1), Block(0.2)]
        self.dropout = nn.Dropout(0.0, deterministic=True)

    def __call__(self, x, train=False):
        for block in self.blocks:
            x = block(x, train)
        return self.again(x, train)

    def again(self, x, train=False):
        return self.blocks[0](self.dropout(x), train)


VARIABLES = Model().init(KEY, X)


def apply(model, train=True, variables=VARIABLES, **kwargs):
    return model.apply(variables, X, train, rngs={"dropout": KEY}, **kwargs)


def test_every_dropout_is_swapped():
    converted = convert(Model(), lambda rate: 10 * rate + 1, KEY, X)
    assert {s.name: (s.kind, s.rate, s.alpha) for s in sites(converted, KEY, X)} == {
        "blocks_0/MultiHeadDotProductAttention_0": ("QSD", 0.5, 6.0),
        "blocks_0/Dropout_0": ("QSD", 0.1, 2.0),
        "blocks_1/MultiHeadDotProductAttention_0": ("QSD", 0.5, 6.0),
        "blocks_1/Dropout_0": ("QSD", 0.2, 3.0),
        "dropout": ("QSD", 0.0, 1.0),
    }
    assert {s.kind for s in sites(Model(), KEY, X)} == {"Dropout", "MultiHeadDotProductAttention"}
    assert isinstance(converted, Model)
    shapes = jax.eval_shape(functools.partial(converted.init, KEY), X)
    assert jax.tree.structure(shapes) == jax.tree.structure(VARIABLES)


def test_what_is_drawn_is_what_the_layer_draws():
    class Native(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.3, broadcast_dims=(0,), rng_collection="own", name="d")(x, False)

    class Diluted(nn.Module):
        @nn.compact
        def __call__(self, x):
            return QSD(0.3, 0.7, broadcast_dims=(0,), rng_collection="own", name="d")(x, False)

    rngs = {"own": KEY}
    desired = Diluted().apply({}, X, rngs=rngs)
    np.testing.assert_array_equal(convert(Native(), 0.7).apply({}, X, rngs=rngs), desired)


def test_outputs_in_evaluation_are_the_same_to_the_bit():
    before = apply(Model(), False)
    np.testing.assert_array_equal(apply(convert(Model(), 1.0), False), before)
    for init in (Model().init, convert(Model(), 1.0).init):
        assert jax.tree.all(
            jax.tree.map(lambda a, b: bool(jnp.all(a == b)), init(KEY, X), VARIABLES)
        )


def test_every_way_to_call_a_module():
    native, converted = Model(), convert(Model(), 1.0)
    desired = apply(converted)
    assert bool(jnp.any(desired != apply(native)))
    np.testing.assert_array_equal(
        converted.bind(VARIABLES, rngs={"dropout": KEY})(X, True), desired
    )
    compiled = jax.jit(apply, static_argnums=(0, 1))(converted, True)
    np.testing.assert_allclose(compiled, desired, rtol=1e-5, atol=1e-5)  # sums in another order
    np.testing.assert_array_equal(compiled == 0, desired == 0)
    with intercept(1.0):
        np.testing.assert_array_equal(apply(native), desired)
    np.testing.assert_array_equal(apply(native), apply(revert(converted)))
    for method in ("again", Model.again, lambda model, x, train: model.again(x, train)):
        got = apply(converted, method=method)
        assert bool(jnp.any(got != apply(native, method=method)))
    assert "again" in dir(converted)


def test_inside_another_module():
    class Outer(nn.Module):
        inner: nn.Module

        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5)(self.inner(x, True), False)

    outer = Outer(convert(Model(), 1.0, include="blocks_0/*"))
    variables = {"params": {"inner": VARIABLES["params"]}}
    found = {s.name for s in sites(outer, KEY, X) if s.alpha == 1.0}
    assert found == {"inner/blocks_0/MultiHeadDotProductAttention_0", "inner/blocks_0/Dropout_0"}
    assert outer.apply(variables, X, rngs={"dropout": KEY}).shape == X.shape
    found = {s.name: s.alpha for s in sites(convert(outer, 2.0), KEY, X)}
    assert found["inner/blocks_0/Dropout_0"] == 1.0  # the innermost wins
    assert found["inner/blocks_1/Dropout_0"] == found["Dropout_0"] == 2.0


class Lifted(nn.Module):
    how: str

    @nn.compact
    def __call__(self, x, train):
        if self.how == "scan":
            body = nn.scan(lambda block, x, _: (block(x, train), None), length=3, **AXES)
            return body(Block(0.5), x, None)[0]
        if self.how == "remat":
            return nn.remat(Block, static_argnums=2)(0.5)(x, train)
        if self.how == "vmap":
            return nn.vmap(Block, in_axes=(0, None), **AXES)(0.5)(x, train)
        if self.how == "vmapped layer":
            axes = {"variable_axes": {}, "split_rngs": {"dropout": False}}
            return nn.vmap(nn.Dropout, in_axes=(0, None), **axes)(0.5)(x, not train)
        if self.how == "vmapped attention":
            layer = functools.partial(nn.MultiHeadDotProductAttention, dropout_rate=0.5)
            layer = nn.vmap(layer, **AXES)(2, deterministic=not train)
            return layer(x)
        return nn.jit(Block, static_argnums=2)(0.5)(x, train)


HOWS = ["scan", "remat", "vmap", "vmapped layer", "vmapped attention", "jit"]


@pytest.mark.parametrize("how", HOWS)
def test_inside_lifted_transformations(how):
    native = Lifted(how)
    rngs = {"params": KEY, "dropout": KEY}
    variables = native.init(rngs, X, False)
    converted = convert(native, 1.0, rngs, X, False)
    assert {s.alpha for s in sites(converted, rngs, X, False)} == {1.0}
    run = lambda model, train: model.apply(variables, X, train, rngs={"dropout": KEY})  # noqa: E731
    np.testing.assert_array_equal(run(converted, False), run(native, False))
    # What nn.jit has compiled for the native model is not used for the other, nor the reverse.
    first = run(native, True), run(converted, True), run(native, True)
    assert bool(jnp.any(first[0] != first[1]))
    np.testing.assert_array_equal(first[0], first[2])
    grad = jax.jit(jax.grad(lambda v: converted.apply(v, X, True, rngs={"dropout": KEY}).sum()))
    assert all(bool(jnp.all(jnp.isfinite(g))) for g in jax.tree.leaves(grad(variables)))
    if how == "vmapped layer":  # one key for all examples: the layer is swapped inside of nn.vmap
        for drawn in first:
            np.testing.assert_allclose(drawn[0] / X[0], drawn[1] / X[1], rtol=1e-5)


@pytest.mark.parametrize("broadcast", [True, False])
def test_attention_is_that_of_the_definition(broadcast):
    layer = nn.MultiHeadDotProductAttention(
        2, dropout_rate=0.5, broadcast_dropout=broadcast, deterministic=False
    )
    variables = layer.init({"params": KEY, "dropout": KEY}, X)
    got = convert(layer, 0.7).apply(variables, X, dropout_rng=KEY)
    p = variables["params"]
    q, k, v = (
        jnp.einsum("btc,chd->bthd", X, p[name]["kernel"]) + p[name]["bias"]
        for name in ("query", "key", "value")
    )
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(4))
    shared = (0, 1) if broadcast else ()
    weights = quantal.jax.dilute(weights, 0.5, 0.7, key=KEY, broadcast_dims=shared)
    heads = jnp.einsum("bhqk,bkhd->bqhd", weights, v)
    desired = jnp.einsum("bqhd,hdc->bqc", heads, p["out"]["kernel"]) + p["out"]["bias"]
    np.testing.assert_allclose(got, desired, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:SelfAttention will be deprecated:DeprecationWarning")  # Flax
def test_self_attention_and_sown_weights():
    layer = nn.SelfAttention(2, dropout_rate=0.5)
    variables = layer.init(KEY, X, deterministic=True)

    def run(model, deterministic):
        return model.apply(
            variables, X, deterministic=deterministic, sow_weights=True,
            rngs={"dropout": KEY}, mutable="intermediates",
        )  # fmt: skip

    native, converted = run(layer, False), run(convert(layer, 1.0), False)
    assert bool(jnp.any(native[0] != converted[0]))
    weights = [state["intermediates"]["attention_weights"][0] for _, state in (native, converted)]
    np.testing.assert_array_equal(*weights)


class Own(nn.Dropout):
    @nn.compact
    def __call__(self, inputs, deterministic=None):
        return inputs


class Literal(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.dot_product_attention(x, x, x, dropout_rate=0.3, deterministic=True)
        x = nn.MultiHeadDotProductAttention(
            2, dropout_rate=0.4, deterministic=True, attention_fn=lambda q, k, v: v
        )(x)
        return nn.Dropout(0.1)(Own(0.2)(x), True)


def test_what_is_out_of_reach_is_named():
    x = jnp.ones((2, 3, 4, 8))
    reasons = {
        ("", "dot_product_attention", 0.3): "Literal.__call__",
        ("MultiHeadDotProductAttention_0", "MultiHeadDotProductAttention", 0.4): "attention_fn",
        ("Own_0", "Own", 0.2): "a class of its own",
    }
    found = sites(Literal(), KEY, x)
    unreached = {(s.name, s.kind, s.rate): s.unreached for s in found if s.unreached}
    assert unreached.keys() == reasons.keys()
    assert all(reasons[place] in unreached[place] for place in reasons)
    with pytest.raises(ValueError, match="cannot swap") as raised:
        convert(Literal(), 1.0, KEY, x)
    assert all(
        f"  {name or '(model)'} ({kind}): " in str(raised.value) for name, kind, _ in reasons
    )
    with pytest.warns(UnreachedWarning, match="cannot swap"):
        convert(Literal(), 1.0, KEY, x, strict=False)
    with pytest.raises(ValueError, match="cannot swap"):  # without arguments, when it runs
        convert(Literal(), 1.0).init(KEY, x)
    with pytest.warns(UnreachedWarning, match="cannot swap"):
        convert(Literal(), 1.0, strict=False).init(KEY, x)
    convert(Literal(), 1.0, KEY, x, include="Dropout_0").init(KEY, x)


def test_choices():
    first = convert(
        Model(), 1.0, KEY, X, include=["blocks_0/*"], exclude=lambda name, module: "Multi" in name
    )
    both = convert(first, 2.0, KEY, X)
    assert {s.name: s.alpha for s in sites(both, KEY, X)} == {
        "blocks_0/MultiHeadDotProductAttention_0": 2.0,
        "blocks_0/Dropout_0": 1.0,
        "blocks_1/MultiHeadDotProductAttention_0": 2.0,
        "blocks_1/Dropout_0": 2.0,
        "dropout": 2.0,
    }
    for module, options in ((both, {}), (nn.Dense(2), {}), (Model(), {"include": "head*"})):
        with pytest.raises(ValueError, match="no dropout to swap"):
            convert(module, 3.0, KEY, X, **options)
    with pytest.raises(ValueError, match="alpha: expected"):
        convert(Model(), 0.0)
    with pytest.raises(TypeError, match="module: expected a flax"):
        convert(Model, 1.0)
    with pytest.raises(ValueError, match="not bound"):
        convert(Model().bind(VARIABLES), 1.0)


def test_shapes_are_enough_to_find_the_sites():
    shapes = jax.eval_shape(lambda: (KEY, X))
    assert sites(Model(), *shapes) == sites(Model(), KEY, X)


def test_modules_stay_values():
    converted = convert(Block(0.3), 1.0, include=["a*", "*"])
    assert converted == convert(Block(0.3), 1.0, include=["a*", "*"]) != convert(Block(0.3), 2.0)
    assert hash(converted) == hash(convert(Block(0.3), 1.0, include=["a*", "*"]))
    for twin in (
        copy.deepcopy(converted),
        pickle.loads(pickle.dumps(converted)),
        converted.clone(),
    ):
        assert twin == converted
        assert revert(twin) == Block(0.3)
        assert type(revert(twin)) is Block
    assert revert(converted.clone(rate=0.4)) == Block(0.4)
    assert revert(Block(0.3)) == Block(0.3)
    assert "alpha=1.0" in repr(converted)


def test_masks_on_forces_dilution_alone():
    class Mixed(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            x = nn.BatchNorm(use_running_average=not train)(x)
            a = nn.Dropout(0.5, deterministic=not train, name="swapped")(x)
            b = nn.Dropout(0.5, name="native")(x, deterministic=not train)
            c = QSD(0.5, 1.0, name="own")(x, not train)
            return a, b, c

    model = convert(Mixed(), 1.0, include="swapped")
    variables = model.init(KEY, X, False)
    run = jax.jit(lambda: model.apply(variables, X, False, rngs={"dropout": KEY}))
    before = run()

    def changed(outputs):
        return [bool(jnp.any(a != b)) for a, b in zip(outputs, before, strict=True)]

    with masks_on(model) as same:
        assert same is model
        assert changed(run()) == [True, False, True]
    assert changed(run()) == [False] * 3
    with masks_on(model, native=True):
        assert changed(run()) == [True] * 3
    with pytest.raises(KeyError), masks_on(model):
        raise KeyError
    assert changed(run()) == [False] * 3


def test_predictions():
    class Two(nn.Module):
        @nn.compact
        def __call__(self, x, scale, train):
            return {"y": nn.Dropout(0.5)(x, not train) * scale, "rest": (x.argmax(),)}

    model, law, n = convert(Two(), 1.0), quantal.Dilution(0.5, 1.0), 4000
    x = jnp.ones((4, 8))
    options = {"scale": jnp.float32(1), "train": False}
    prediction = predict_mc(model, {}, x, n, key=KEY, **options)
    error = 4 / math.sqrt(n * x.size)  # four standard errors, both of them
    assert abs(prediction.mean["y"].mean() - law.mean) < error * law.std
    assert abs((prediction.std["y"] ** 2).mean() - law.var) < error * math.sqrt(law.moment(4))
    assert prediction.std["rest"][0] == 0
    again = predict_mc(model, {}, x, n, key=quantal.key(0), **options)
    np.testing.assert_array_equal(again.mean["y"], prediction.mean["y"])
    with pytest.raises(ValueError, match="n: expected an integer of at least 2"):
        predict_mc(model, {}, x, 1, key=KEY, **options)


def test_predictions_of_a_module_that_has_no_hash():
    model = convert(nn.Sequential([nn.Dropout(0.5, deterministic=True)]), 1.0)
    with pytest.raises(TypeError, match="hash"):
        hash(model)
    assert bool(jnp.all(predict_mc(model, {}, jnp.ones(4), 9, key=KEY).std > 0))


def test_training_steps():
    model = convert(Model(), 1.0)
    state = TrainState.create(apply_fn=model.apply, params=VARIABLES["params"], tx=optax.adam(1e-2))

    @jax.jit
    def step(state, key):
        def loss(params):
            y = state.apply_fn({"params": params}, X, True, rngs={"dropout": key})
            return jnp.mean((y - 1) ** 2)

        value, grads = jax.value_and_grad(loss)(state.params)
        return state.apply_gradients(grads=grads), value

    losses = []
    for key in jax.random.split(KEY, 20):
        state, loss = step(state, key)
        losses.append(float(loss))
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[-5:]) < np.mean(losses[:5])


def test_nothing_is_left_behind():
    with pytest.raises(RuntimeError), intercept(1.0):
        raise RuntimeError
    native = nn.Dropout(0.5, deterministic=False).apply({}, X, rngs={"dropout": KEY})
    assert set(np.unique(np.round(native / X, 4))) == {0.0, 2.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        apply(convert(Model(), 1.0))


def test_the_mean_gain_is_that_of_the_layer_s_own_law():
    layer = QSD(0.5, 1.0, unit_mean=True, deterministic=True)
    assert [site.mean_gain for site in sites(nn.Sequential([layer]), KEY, X)] == [1]
