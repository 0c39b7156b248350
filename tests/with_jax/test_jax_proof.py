"""Proof by running: `sites` and `convert` with an example see every mask that is not QSD's.

The counts are taken apart from the watcher: every mask of native dropout is a call of
``jax.random.bernoulli``.
"""

import functools
import warnings

import equinox as eqx
import haiku as hk
import jax
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx
from jax import numpy as jnp
from jax.random import bernoulli

import quantal.jax.equinox
import quantal.jax.haiku
import quantal.jax.linen
import quantal.jax.nnx
from quantal.jax import _watch
from quantal.sites import UnreachedWarning

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (2, 5, 8))


def names(sites):
    return {(site.name.partition(":")[0], site.kind) for site in sites if site.unreached}


@pytest.fixture
def bernoullis(monkeypatch):
    """The calls of ``jax.random.bernoulli``, one by one, whoever makes them."""
    calls, native = [], jax.random.bernoulli

    def counted(*args, **kwargs):
        calls.append(args)
        return native(*args, **kwargs)

    monkeypatch.setattr(jax.random, "bernoulli", counted)
    return calls


# --- the watcher ---------------------------------------------------------------------------------


def drawn(function):
    return [draw.kind for draw in _watch.native_masks(function, KEY, X)]


@jax.jit
def compiled_before(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x, 0)


CAPTURED = jnp.linspace(0, 1, 8)  # with one axis, as the input of an Equinox model
MASKS = {
    "by a name of its own": lambda key, x: x * bernoulli(key, 0.9, x.shape),
    "of uniform numbers": lambda key, x: x * (jax.random.uniform(key, x.shape) < 0.9),
    "the other way round": lambda key, x: jnp.where(jax.random.uniform(key, x.shape) > 0.1, x, 0),
    "of bits": lambda key, x: x * (jax.random.bits(key, x.shape, jnp.uint8) < 200),
    "of one bit": lambda key, x: x * (jax.random.bits(key, x.shape) & 1).astype(bool),
    "of another generator": lambda key, x: (
        x * (jax.random.uniform(jax.random.key(3, impl="rbg"), x.shape) < 0.9)
    ),
    "compiled before": compiled_before,
    "in a loop": lambda key, x: jax.lax.scan(
        lambda x, key: (compiled_before(key, x), None), x, jax.random.split(key, 3)
    )[0],
    "in a branch": lambda key, x: jax.lax.cond(
        x.sum() > 0, lambda: compiled_before(key, x), lambda: x
    ),
    "in a backward pass": lambda key, x: jax.grad(
        lambda x: jax.checkpoint(compiled_before)(key, x).sum()
    )(x),
    "for each example": lambda key, x: jax.vmap(compiled_before)(jax.random.split(key, 2), x),
    "with a rate that is traced": lambda key, x: (
        x * bernoulli(key, 1 - 0.5 * jax.nn.sigmoid(jnp.float32(1)), x.shape)
    ),
    "by rounding down": lambda key, x: x * jnp.floor(jax.random.uniform(key, (2, 1, 1)) + 0.9),
    "by rounding": lambda key, x: x * jnp.round(jax.random.uniform(key, x.shape)),
    "by truncation": lambda key, x: x * (jax.random.uniform(key, x.shape) + 0.9).astype(int),
    "of normal numbers": lambda key, x: x * (jax.random.normal(key, x.shape) > -1),
    "of integers": lambda key, x: x * jax.random.randint(key, x.shape, 0, 2),
    "of some integers": lambda key, x: x * (jax.random.randint(key, x.shape, 0, 10) < 9),
    "of an integer": lambda key, x: jnp.where(jax.random.randint(key, x.shape, 0, 9) == 0, 0, x),
    "of the last bit": lambda key, x: x * (jax.random.bits(key, x.shape) % 2),
    "of the first bit": lambda key, x: x * (jax.random.bits(key, x.shape) >> 31),
    "of other bits": lambda key, x: x * (jax.random.bits(key, x.shape) % 10 < 9),
    "of a legacy key": lambda key, x: (
        x * (jax.random.normal(jax.random.key_data(key), x.shape) > -1)
    ),
    "a choice of two": lambda key, x: x * jax.random.choice(key, 2, x.shape),
    "an unequal choice": lambda key, x: (
        x * jax.random.choice(key, jnp.array([0.0, 1.0]), x.shape, p=jnp.array([0.1, 0.9]))
    ),
    "a choice of truths": lambda key, x: (
        x * jax.random.choice(key, jnp.array([True, False, False]), x.shape)
    ),
    "a category of two": lambda key, x: (
        x * jax.random.categorical(key, jnp.log(jnp.array([0.1, 0.9])), shape=x.shape)
    ),
    "a permutation": lambda key, x: x * (jax.random.permutation(key, 8) < 6),
    "shuffled": lambda key, x: x * jax.random.permutation(key, jnp.arange(8) < 6),
    "shuffled numbers": lambda key, x: (
        x * jax.random.permutation(key, jnp.array([0.0] * 2 + [1] * 6))
    ),
    "an order": lambda key, x: x * (jnp.argsort(jax.random.uniform(key, x.shape)) < 6),
    "written": lambda key, x: x.at[:, :, jax.random.permutation(key, 8)[:2]].set(0),
    "written elsewhere": lambda key, x: (
        x * jnp.ones(8).at[jax.random.choice(key, 8, (2,), replace=False)].set(0)
    ),
    "added": lambda key, x: x + jnp.where(bernoulli(key, 0.9, x.shape), 0, -1e9),
    "binomial": lambda key, x: x * jax.random.binomial(key, 1, 0.9, x.shape),
    "of a branch": lambda key, x: jax.lax.cond(bernoulli(key, 0.9), jnp.sin, jnp.zeros_like, x),
    "kept in a loop": lambda key, x: jax.lax.fori_loop(
        0, 3, lambda i, x: x * bernoulli(jax.random.fold_in(key, i), 0.9, x.shape), x
    ),
    "a step": lambda key, x: x * jnp.heaviside(jax.random.uniform(key, x.shape) - 0.1, 0),
    "by whole division": lambda key, x: x * ((jax.random.uniform(key, x.shape) + 0.9) // 1),
    "above one bound": lambda key, x: (
        x * jnp.digitize(jax.random.uniform(key, x.shape), jnp.array([0.1]))
    ),
    "in a sum of products": lambda key, x: jnp.einsum(
        "abc,c->abc", x, bernoulli(key, 0.9, (8,)).astype(float)
    ),
    "multiplied in place": lambda key, x: x.at[:, :, jax.random.permutation(key, 8)[:2]].multiply(
        0
    ),
    "after a change in place": lambda key, x: x.at[:, 0].add(1) * bernoulli(key, 0.9, x.shape),
    "of captured data": lambda key, x: CAPTURED * bernoulli(key, 0.9, CAPTURED.shape) @ x[0, 0],
    "selected": lambda key, x: jax.lax.select(
        jax.random.uniform(key, x.shape) < 0.9, x, jnp.zeros_like(x)
    ),
}
NO_MASKS = {
    "noise": lambda key, x: jax.nn.relu(x + jax.random.normal(key, x.shape)),
    "activated noise": lambda key, x: (
        x * jax.nn.selu(jax.nn.leaky_relu(jax.random.normal(key, x.shape)))
    ),
    "a triangle": lambda key, x: x + jax.random.triangular(key, 0.0, 0.5, 1.0, x.shape),
    "counts": lambda key, x: x + jax.random.binomial(key, 10.0, 0.5, x.shape),
    "a Gumbel-softmax": lambda key, x: x * jax.nn.softmax(x + jax.random.gumbel(key, x.shape)),
    "a variational sample": lambda key, x: (
        (x + jnp.exp(x) * jax.random.normal(key, x.shape) > 0) * x
    ),
    "initial weights": lambda key, x: (
        x @ jax.random.orthogonal(key, 8) @ jax.nn.initializers.he_normal()(key, (8, 8))
    ),
    "random labels": lambda key, x: x + jax.nn.one_hot(jax.random.randint(key, (2, 5), 0, 8), 8),
    "a step of diffusion": lambda key, x: (
        x * jnp.linspace(0, 1, 10)[jax.random.randint(key, (2, 1, 1), 0, 10)]
    ),
    "scaled noise": lambda key, x: x + CAPTURED * jax.random.normal(key, x.shape),
    "added in place": lambda key, x: x.at[:, 0].add(jax.random.normal(key, (8,))),
    "one of two": lambda key, x: x[:, jax.random.randint(key, (3,), 0, 2)],
    "a masked autoencoder": lambda key, x: jnp.take_along_axis(
        x, jnp.argsort(jax.random.uniform(key, (2, 5)))[:, :3, None], 1
    ),
    "a projection": lambda key, x: x @ jax.random.rademacher(key, (8, 8)).astype(x.dtype),
    "not a number": lambda key, x: (lambda n: jnp.where(jnp.isnan(n), x, x + n))(
        jax.random.normal(key, x.shape)
    ),
    "truncated noise": lambda key, x: x + jax.random.truncated_normal(key, -1, 1, x.shape),
    "gamma": lambda key, x: x + jax.random.gamma(key, 0.5, x.shape),
    "an order": lambda key, x: jax.random.permutation(key, x),
    "a choice": lambda key, x: x[jax.random.randint(key, (), 0, 2)],
    "one of many": lambda key, x: x[jnp.floor(jax.random.uniform(key, (3,)) * 2).astype(int)],
    "a time": lambda key, x: x + jnp.floor(jax.random.uniform(key, (2, 1, 1), maxval=99)),
    "a category": lambda key, x: jax.random.categorical(key, x),
    "a sample of data": lambda key, x: bernoulli(key, jax.nn.sigmoid(x)),
    "what QSD draws": lambda key, x: jax.nn.relu(quantal.jax.dilute(x, 0.5, 1.0, key=key)),
    "shared": lambda key, x: quantal.jax.dilute(x, 0.5, 1.0, key=key, p_broadcast_dims=0),
    "by a law": lambda key, x: quantal.jax.dilute(x, quantal.jax.law(0.5, 1.0), key=key),
    "QSD backwards": lambda key, x: jax.grad(
        lambda x: quantal.jax.dilute(x, 0.5, 1.0, key=key, p_broadcast_dims=0).sum()
    )(x),
}


SHAPE = jax.ShapeDtypeStruct(X.shape, X.dtype)
ON_THE_HOST = {
    "pure_callback": lambda key, x: x * jax.pure_callback(lambda: numpy_mask(x), SHAPE),
    "io_callback": lambda key, x: (
        x * (jax.experimental.io_callback(np.random.default_rng(0).random, SHAPE, x.shape) < 0.5)
    ),
    "of data": lambda key, x: jax.pure_callback(lambda x: x * numpy_mask(x), SHAPE, x),
}


def numpy_mask(x):
    return (np.random.default_rng().random(x.shape) < 0.9).astype(np.float32)


@pytest.mark.parametrize("way", ON_THE_HOST)
def test_what_comes_from_the_host(way):
    """It is named, whatever it is; a function of data only if its code mentions random numbers."""
    kind = "pure_callback" if way == "of data" else way
    assert drawn(ON_THE_HOST[way]) == [kind]
    assert drawn(lambda key, x: jax.pure_callback(lambda x: np.sinh(x), SHAPE, x)) == []


@pytest.mark.parametrize("way", MASKS)
def test_every_mask_is_seen(way):
    assert drawn(MASKS[way]) == ["bernoulli"]


@pytest.mark.parametrize("way", NO_MASKS)
def test_nothing_else_is(way):
    assert drawn(NO_MASKS[way]) == []


def test_without_jit():
    with jax.disable_jit():
        assert drawn(NO_MASKS["what QSD draws"]) == []
        assert drawn(compiled_before) == ["bernoulli"]


def test_where_a_mask_comes_from():
    def helper(x):
        return x * bernoulli(KEY, 0.9, x.shape)

    (draw,) = _watch.native_masks(lambda x: nnx.Dropout(0.25)(helper(x) * 0 + x, rngs=KEY), X)[1:]
    assert (draw.kind, draw.rate) == ("Dropout", 0.25)
    site = _watch.native_masks(helper, X)[0].site
    assert site.name == f"test_jax_proof.py:{helper.__code__.co_firstlineno + 1}"
    assert "test_where_a_mask_comes_from.<locals>.helper" in site.unreached


def test_where_a_mask_comes_from_that_jax_itself_makes():
    """What stands in a function of JAX's own is named by its caller, also when it is called again."""

    def helper(x):
        return x * jnp.round(jax.random.uniform(KEY, x.shape))

    def first(x):
        return jnp.round(x)

    x = jnp.ones((2, 3, 5))  # of a shape that no other test has
    jax.make_jaxpr(first)(x)  # from now on, its program has no frames of ours
    (draw,) = _watch.native_masks(helper, x)
    # JAX 0.8 keeps the frames of whoever called it first.
    caller = helper if jax.__version_info__ >= (0, 9) else first
    assert draw.site.name == f"test_jax_proof.py:{caller.__code__.co_firstlineno + 1}"


# --- NNX -----------------------------------------------------------------------------------------


def helper(x, key):
    return x * bernoulli(key, 0.9, x.shape)


OUTSIDE = nnx.Dropout(0.35)
ATTENTION = functools.partial(nnx.dot_product_attention, precision="highest")


class Hidden(nnx.Module):
    """Dropout that is a part of the model, and dropout that is not."""

    def __init__(self, rngs, hide=True):
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            2, 8, dropout_rate=0.2, decode=False, attention_fn=ATTENTION, rngs=rngs
        )
        self.rngs = rngs.fork()
        self.hide = hide

    def __call__(self, x):
        x = self.attention(self.dropout(self.norm(x)))
        if self.hide:
            drop = nnx.Dropout(0.3)
            x = drop(x, rngs=self.rngs.dropout())
            x = OUTSIDE(helper(x, self.rngs.dropout()), rngs=self.rngs.dropout())
        return x


def test_nnx(bernoullis):
    model = Hidden(nnx.Rngs(0))
    before = nnx.split(model)
    by_looking, by_running = (quantal.jax.nnx.sites(model, example=e) for e in (None, X))
    assert names(by_looking) == {("", "Dropout")}
    assert {site.rate for site in by_looking if site.unreached} == {0.3, 0.35}
    assert names(by_running) - names(by_looking) == {("test_jax_proof.py", "bernoulli")}
    with pytest.raises(ValueError, match=r"test_jax_proof.py:\d+ \(bernoulli\)"):
        quantal.jax.nnx.convert(model, 1.0, example=lambda model: model(X).sum())
    after = nnx.split(model)
    assert after[0] == before[0]
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.all(a == b)), before[1], after[1]))

    with pytest.warns(UnreachedWarning, match="cannot swap"):
        quantal.jax.nnx.convert(model, 1.0, example=X, strict=False)
    bernoullis.clear()
    model.train()
    model(X)
    assert len(bernoullis) == 2  # nnx.Dropout twice; helper has a name of its own for it
    assert names(quantal.jax.nnx.sites(model, example=X)) == names(by_running)


def test_nnx_proves_that_nothing_was_missed(bernoullis):
    model = quantal.jax.nnx.convert(Hidden(nnx.Rngs(0), hide=False), 1.0, exclude="", example=(X,))
    # What the code mentions is named by looking, also where it does not run.
    assert {site.rate for site in quantal.jax.nnx.sites(model) if site.unreached} == {0.3, 0.35}
    bernoullis.clear()
    model.train()
    nnx.grad(lambda model: model(X).sum())(model)
    assert bernoullis == []


def test_a_pass_that_draws_nothing_proves_nothing():
    model = nnx.Sequential(nnx.Dropout(0.5, rngs=nnx.Rngs(0)))
    for example in (lambda model: X, lambda model: (model.eval(), model(X))):
        with pytest.raises(ValueError, match="example: expected a training pass"):
            quantal.jax.nnx.sites(model, example=example)
    model.eval()
    assert len(quantal.jax.nnx.sites(model, example=X)) == 1  # the copy is in training mode
    assert model.layers[0].deterministic


def test_what_is_out_of_reach_needs_no_mask():
    """It is named, also if what it draws is no mask, or it is not run."""

    class Noisy(nnx.Dropout):
        def __call__(self, x, **_):
            return x * (1 + self.rate * jax.random.normal(self.rngs(), x.shape))

    model = nnx.Sequential(Noisy(0.5, rngs=nnx.Rngs(0)))
    (site,) = quantal.jax.nnx.sites(model, example=X)
    assert site.unreached
    with pytest.raises(ValueError, match="Noisy is a class of its own"):
        quantal.jax.nnx.convert(model, 1.0, example=X)
    (site,) = quantal.jax.nnx.sites(nnx.Sequential(nnx.Dropout(1.0)), example=X)
    assert not site.unreached  # but there is nothing to be drawn


def test_nnx_a_tree_of_modules():
    model = {
        "one": nnx.Dropout(0.5, rngs=nnx.Rngs(0)),
        "more": [nnx.Dropout(0.2, rngs=nnx.Rngs(1))],
    }
    model["one"].eval()
    quantal.jax.nnx.convert(model, 1.0, example=lambda m: m["one"](m["more"][0](X)))
    assert [site.alpha for site in quantal.jax.nnx.sites(model)] == [1.0, 1.0]
    assert model["one"].deterministic


def test_nnx_a_stream_outside_of_the_model_is_named():
    """Flax refuses to draw from it in a trace: so the proof ends there, and says where."""
    outside = iter([nnx.Dropout(0.5, rngs=nnx.Rngs(0))] * 9)  # which no reading of code sees
    model = nnx.Sequential(nnx.Dropout(0.2, rngs=nnx.Rngs(0)), lambda x: next(outside)(x))
    reason = r"no part of the model runs in .*, test_jax_proof\.py:\d+"
    with pytest.raises(ValueError, match=reason):
        quantal.jax.nnx.convert(model, 1.0, example=X)
    with pytest.warns(UnreachedWarning, match=reason):
        quantal.jax.nnx.convert(model, 1.0, example=X, strict=False)
    assert model.layers[0].alpha == 1.0


# --- Linen ---------------------------------------------------------------------------------------


class LinenHidden(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Dropout(0.1, deterministic=not train)(nn.Dense(8)(x))
        x = nn.MultiHeadDotProductAttention(2, dropout_rate=0.2)(x, deterministic=not train)
        return helper(x, self.make_rng("dropout")) if train else x


class Stack(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True, "dropout": True}}
        body = nn.scan(nn.remat(lambda m, x, _: (m(x, train), None)), length=2, **axes)
        return body(LinenHidden(), x, None)[0]


@pytest.mark.parametrize("model", [LinenHidden(), Stack()], ids=["plain", "lifted"])
def test_linen(model, bernoullis):
    sites, convert = quantal.jax.linen.sites, quantal.jax.linen.convert
    known = {s.name for s in sites(model, {"params": KEY, "dropout": KEY}, X, True)}
    found = sites(model, example={"x": X, "train": True})
    assert {site.name for site in found if not site.unreached} == known
    assert names(found) == {("test_jax_proof.py", "bernoulli")}
    with pytest.raises(ValueError, match=r"test_jax_proof.py:\d+ \(bernoulli\)"):
        convert(model, 1.0, example=(X, True))
    converted = convert(model, 1.0, example=(X, True), exclude="test_jax_proof.py:*")
    variables = model.init(KEY, X, False)

    def train(model):
        return model.apply(variables, X, True, rngs={"dropout": KEY})

    assert {s.kind for s in sites(converted, example=train)} == {"QSD", "bernoulli"}
    bernoullis.clear()
    train(converted)
    assert bernoullis == []
    with pytest.raises(ValueError, match="example: expected a training pass"):
        sites(model, example=(X, False))


class Attention(nn.Module):
    rate: float

    @nn.compact
    def __call__(self, x, train=True):
        x = nn.Dropout(0.1, deterministic=not train)(x)
        attend = functools.partial(nn.dot_product_attention, precision="highest")
        return nn.MultiHeadDotProductAttention(2, dropout_rate=self.rate, attention_fn=attend)(
            x, deterministic=not train
        )


def test_attention_that_drops_nothing_is_not_named():
    for rate, named in ((0.0, set()), (0.5, {("MultiHeadDotProductAttention_0",) * 2})):
        found = quantal.jax.linen.sites(Attention(rate), example=X)
        assert {(name, name) for name, _ in names(found)} == named


class Inner(nnx.Module):
    def __init__(self, rngs):
        self.linear, self.dropout = nnx.Linear(8, 8, rngs=rngs), nnx.Dropout(0.4, rngs=rngs)

    def __call__(self, x):
        return self.dropout(self.linear(x))


class Outer(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nnx.bridge.ToLinen(Inner, name="inner")(x)
        return nn.Dropout(0.2, deterministic=not train)(x)


def test_nnx_inside_linen(bernoullis):
    rngs = {"params": KEY, "dropout": KEY}
    variables = Outer().init(rngs, X, True)
    converted = quantal.jax.linen.convert(Outer(), lambda rate: 10 * rate, example=(X, True))
    assert {s.name: s.alpha for s in quantal.jax.linen.sites(converted, example=(X, True))} == {
        "inner/dropout": 4.0,
        "Dropout_0": 2.0,
    }
    assert jax.tree.structure(converted.init(rngs, X, True)) == jax.tree.structure(variables)
    bernoullis.clear()
    converted.apply(variables, X, True, rngs={"dropout": KEY})
    assert bernoullis == []
    only = quantal.jax.linen.convert(Outer(), 1.0, example=(X, True), include="inner/*")
    kinds = {s.name: s.kind for s in quantal.jax.linen.sites(only, rngs, X, True)}
    assert kinds == {"inner/dropout": "QSD", "Dropout_0": "Dropout"}


class Described(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.remat(Quiet)()(x)


class Quiet(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dropout(0.5, deterministic=False)(nn.Dense(8)(x))


def test_linen_inside_nnx(bernoullis):
    model = nnx.Sequential(
        nnx.bridge.ToNNX(Described(), rngs=nnx.Rngs(0, dropout=1)).lazy_init(X),
        nnx.bridge.ToNNX(nn.Dense(8), rngs=nnx.Rngs(0)).lazy_init(X),
    )
    before = nnx.split(model)[0]
    assert [s.name for s in quantal.jax.nnx.sites(model)] == ["layers/0"]
    quantal.jax.nnx.convert(model, 1.0, example=X)
    assert [(s.kind, s.alpha) for s in quantal.jax.nnx.sites(model, example=X)] == [("QSD", 1.0)]
    bernoullis.clear()
    model(X)
    assert bernoullis == []
    assert nnx.split(quantal.jax.nnx.revert(model))[0] == before
    with pytest.raises(ValueError, match="alpha must be a number here"):
        quantal.jax.nnx.convert(model, lambda rate: rate)


def test_masks_on_reaches_linen_inside_nnx():
    class Off(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=True)(x)

    model = nnx.bridge.ToNNX(Off(), rngs=nnx.Rngs(0, dropout=1)).lazy_init(X)
    quantal.jax.nnx.convert(model, 1.0)
    np.testing.assert_array_equal(model(X), X)
    with quantal.jax.nnx.masks_on(model):
        assert bool(jnp.any(model(X) != X))
    np.testing.assert_array_equal(model(X), X)
    assert bool(jnp.all(quantal.jax.nnx.predict_mc(model, X, 20, key=KEY).std > 0))


# --- Equinox -------------------------------------------------------------------------------------

GLOBAL = eqx.nn.Dropout(0.35)


class EquinoxHidden(eqx.Module):
    dropout: eqx.nn.Dropout
    attention: eqx.nn.MultiheadAttention
    static: eqx.nn.Dropout = eqx.field(static=True)
    function: object
    hide: bool

    def __init__(self, key, hide=True):
        closed_over = eqx.nn.Dropout(0.45)
        self.dropout, self.static = eqx.nn.Dropout(0.1), eqx.nn.Dropout(0.25)
        self.attention = eqx.nn.MultiheadAttention(2, 8, dropout_p=0.2, key=key)
        self.function = (lambda x, key: closed_over(x, key=key)) if hide else (lambda x, key: x)
        self.hide = hide

    def __call__(self, x, *, key):
        keys = jax.random.split(key, 6)
        x = self.attention(x, x, x, key=keys[0])
        x = self.function(self.dropout(x, key=keys[1]), keys[2])
        if self.hide:
            x = helper(self.static(x, key=keys[3]), keys[4])
            x = GLOBAL(x, key=keys[5])
        return x


def test_equinox(bernoullis):
    model = eqx.nn.inference_mode(EquinoxHidden(KEY))
    sites, convert = quantal.jax.equinox.sites, quantal.jax.equinox.convert
    assert {s.rate for s in sites(model) if s.unreached} == {0.25, 0.35, 0.45}
    found = sites(model, example=X[0])
    assert {s.rate for s in found if s.unreached and s.name == ""} == {0.25, 0.35, 0.45}
    assert names(found) - names(sites(model)) == {("test_jax_proof.py", "bernoulli")}

    def loss(model):
        return eqx.filter_grad(
            lambda model: jax.vmap(model)(X, key=jax.random.split(KEY, 2)).sum()
        )(model)

    with pytest.raises(ValueError, match=r"test_jax_proof.py:\d+ \(bernoulli\)"):
        convert(model, 1.0, example=loss)
    plain = convert(EquinoxHidden(KEY, hide=False), 1.0, exclude="", example=loss)
    bernoullis.clear()
    loss(plain)
    assert bernoullis == []


def test_an_equinox_model_that_takes_no_key():
    with pytest.raises(ValueError, match="example: expected a training pass"):
        quantal.jax.equinox.sites([eqx.nn.Dropout(0.5)], example=lambda model: jnp.ones(3))

    class NoKey(eqx.Module):
        def __call__(self, x):
            return x

    assert len(quantal.jax.equinox.sites(NoKey(), example=X)) == 0


# --- Haiku ---------------------------------------------------------------------------------------


def haiku_model(x, is_training):
    x = hk.nets.MLP([8, 8])(x, *((0.3, hk.next_rng_key()) if is_training else ()))
    return helper(x, hk.next_rng_key()) if is_training else x


def test_haiku(bernoullis):
    model, raw = hk.transform(haiku_model), jax.random.PRNGKey(0)
    found = quantal.jax.haiku.sites(model, example=(X, True))
    assert [(s.name, s.rate) for s in found if not s.unreached] == [("mlp/dropout_0", 0.3)]
    assert names(found) == {("test_jax_proof.py", "bernoulli")}
    with pytest.raises(ValueError, match=r"test_jax_proof.py:\d+ \(bernoulli\)"):
        quantal.jax.haiku.convert(model, 1.0, example=(X, True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        converted = quantal.jax.haiku.convert(
            model, 1.0, example={"x": X, "is_training": True}, exclude="test_jax_proof.py:*"
        )
    params = model.init(raw, X, False)
    bernoullis.clear()
    converted.apply(params, raw, X, True)
    assert bernoullis == []
