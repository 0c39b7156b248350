"""`convert`, `revert`, `sites`, `masks_on` and `predict_mc` for Equinox."""

import math
import pickle

import equinox as eqx
import jax
import numpy as np
import pytest
from jax import numpy as jnp

import quantal
import quantal.jax.equinox
from quantal.jax.equinox import QSD, convert, masks_on, predict_mc, revert, sites
from quantal.sites import UnreachedWarning

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (5, 8))


class Block(eqx.Module):
    linear: eqx.nn.Linear
    dropout: eqx.nn.Dropout

    def __init__(self, rate, key):
        self.linear = eqx.nn.Linear(8, 8, key=key)
        self.dropout = eqx.nn.Dropout(rate)

    def __call__(self, x, *, key=None):
        return self.dropout(jax.vmap(self.linear)(x), key=key)


class Model(eqx.Module):
    blocks: list
    attention: eqx.nn.MultiheadAttention
    by_name: dict

    def __init__(self, key):
        self.blocks = [Block(0.1, key), Block(jnp.float32(0.25), key)]
        self.attention = eqx.nn.MultiheadAttention(2, 8, dropout_p=0.5, inference=True, key=key)
        self.by_name = {"out": eqx.nn.Dropout(0.0)}

    def __call__(self, x, *, key=None):
        keys = [None] * 4 if key is None else jax.random.split(key, 4)
        for block, own in zip(self.blocks, keys, strict=False):
            x = block(x, key=own)
        return self.by_name["out"](self.attention(x, x, x, key=keys[2]), key=keys[3])


MODEL = Model(KEY)


def test_every_dropout_is_swapped_with_its_options():
    converted = convert(MODEL, lambda rate: 10 * rate + 1)
    assert {s.name: (s.kind, s.rate, s.alpha) for s in sites(converted)} == {
        "blocks.0.dropout": ("QSD", 0.1, 2.0),
        "blocks.1.dropout": ("QSD", 0.25, 3.5),
        "attention.dropout": ("QSD", 0.5, 6.0),
        "by_name.out": ("QSD", 0.0, 1.0),
    }
    assert {s.kind for s in sites(MODEL)} == {"Dropout"}
    assert isinstance(converted.blocks[1].dropout.p, jax.Array)
    assert converted.attention.dropout.inference is True
    assert converted.blocks[0].dropout.inference is False
    got = converted.blocks[0].dropout(X, key=KEY)
    np.testing.assert_array_equal(got, quantal.jax.dilute(X, 0.1, 2.0, key=KEY))
    assert isinstance(convert(eqx.nn.Dropout(0.5), 1.0), QSD)


def test_attention_weights_are_diluted():
    layer = eqx.nn.MultiheadAttention(2, 8, dropout_p=0.5, key=KEY)
    got = convert(layer, 0.7)(X, X, X, key=KEY)
    q, k, v = (
        (X @ projection.weight.T).reshape(5, 2, 4)
        for projection in (layer.query_proj, layer.key_proj, layer.value_proj)
    )
    weights = jax.nn.softmax(jnp.einsum("qhd,khd->hqk", q, k) / 2)
    keys = jax.random.split(KEY, 2)
    diluted = [
        quantal.jax.dilute(w, 0.5, 0.7, key=key) for w, key in zip(weights, keys, strict=True)
    ]
    heads = jnp.einsum("hqk,khd->qhd", jnp.stack(diluted), v).reshape(5, 8)
    np.testing.assert_allclose(got, heads @ layer.output_proj.weight.T, rtol=1e-5, atol=1e-6)


def test_outputs_in_inference_are_the_same_to_the_bit():
    before = eqx.nn.inference_mode(MODEL)(X)
    np.testing.assert_array_equal(eqx.nn.inference_mode(convert(MODEL, 1.0))(X), before)


def test_revert_gives_an_equal_model_and_keeps_what_has_happened():
    converted = convert(MODEL, 1.0)
    assert eqx.tree_equal(revert(converted), MODEL)
    assert eqx.tree_equal(revert(pickle.loads(pickle.dumps(converted))), MODEL)
    changed = eqx.tree_at(
        lambda m: (m.blocks[0].dropout.p, m.blocks[0].linear.bias, m.by_name["out"]),
        converted,
        (0.3, jnp.ones(8), QSD(0.5, 1.0)),
    )
    back = revert(eqx.nn.inference_mode(changed))
    assert type(back.blocks[0].dropout) is eqx.nn.Dropout
    assert (back.blocks[0].dropout.p, back.blocks[0].dropout.inference) == (0.3, True)
    assert bool(jnp.all(back.blocks[0].linear.bias == 1))
    assert isinstance(back.by_name["out"], QSD)  # made by hand, and left alone


def test_leaves_and_checkpoints_fit_both_ways(tmp_path):
    converted = convert(MODEL, 1.0)
    assert len(jax.tree.leaves(converted)) == len(jax.tree.leaves(MODEL))
    shifted = jax.tree.map(lambda leaf: leaf + 1 if eqx.is_array(leaf) else leaf, MODEL)
    for source, target in ((shifted, converted), (convert(shifted, 1.0), MODEL)):
        eqx.tree_serialise_leaves(tmp_path / "model.eqx", source)
        loaded = eqx.tree_deserialise_leaves(tmp_path / "model.eqx", target)
        assert jax.tree.structure(loaded) == jax.tree.structure(target)
        assert eqx.tree_equal(revert(loaded), shifted)


def test_a_compiled_function_sees_the_change():
    run = eqx.filter_jit(lambda model, x: model(x, key=KEY))
    layer, x = eqx.nn.Dropout(0.5), jnp.ones((20, 20))
    assert set(np.unique(run(layer, x))) == {0.0, 2.0}
    assert len(np.unique(run(convert(layer, 1.0), x))) > 2
    assert set(np.unique(run(revert(convert(layer, 1.0)), x))) == {0.0, 2.0}


def test_stacked_layers_and_ensembles():
    keys = jax.random.split(KEY, 3)
    stack = eqx.filter_vmap(lambda key, rate: Block(rate, key))(keys, jnp.array([0.1, 0.5, 0.9]))
    converted = convert(stack, 1.0)
    site = sites(converted)[0]
    assert (site.alpha, math.isnan(site.rate)) == (1.0, True)
    assert "nan" in repr(sites(converted))

    def layers(model, x, key):
        arrays, static = eqx.partition(model, eqx.is_array)

        def layer(x, item):
            arrays, key = item
            return eqx.combine(arrays, static)(x, key=key), None

        return jax.lax.scan(layer, x, (arrays, jax.random.split(key, 3)))[0]

    ensemble = eqx.filter_vmap(
        lambda block, x, key: block(x, key=key), in_axes=(eqx.if_array(0), None, 0)
    )
    got = ensemble(converted, X, keys)
    for i, rate in enumerate((0.1, 0.5, 0.9)):
        weight, bias = stack.linear.weight[i], stack.linear.bias[i]
        desired = quantal.jax.dilute(X @ weight.T + bias, float(np.float32(rate)), 1.0, key=keys[i])
        np.testing.assert_allclose(got[i], desired, rtol=1e-5, atol=1e-6)
    assert eqx.filter_jit(layers)(converted, X, KEY).shape == X.shape
    assert eqx.tree_equal(revert(converted), stack)
    with pytest.raises(ValueError, match="alpha must be a number here"):
        convert(stack, lambda rate: rate)
    same = eqx.filter_vmap(lambda key: Block(jnp.float32(0.5), key))(keys)
    assert sites(convert(same, lambda rate: 2 * rate))[0].alpha == 1.0


def test_shared_modules():
    class Tied(eqx.Module):
        shared: eqx.nn.Shared

        def __init__(self):
            pair = (Block(0.1, KEY), Block(0.1, KEY))
            self.shared = eqx.nn.Shared(
                pair, where=lambda p: p[1].linear.weight, get=lambda p: p[0].linear.weight
            )

    tied = Tied()
    first, second = convert(tied, 1.0).shared()
    assert first.linear.weight is second.linear.weight
    assert isinstance(second.dropout, QSD)
    twice = eqx.nn.Dropout(0.5)
    assert len([s for s in sites(convert([twice, twice], 1.0)) if s.kind == "QSD"]) == 2


class Own(eqx.nn.Dropout):
    def __call__(self, x, **kwargs):
        return x


class Literal(eqx.Module):
    dropout: eqx.nn.Dropout

    def __call__(self, x, key):
        x = QSD(0.5, 1.0)(x, key=key)  # nothing to swap
        return eqx.nn.Dropout(0.2)(self.dropout(x, key=key), key=key)


def test_what_is_out_of_reach_is_named():
    model = [Literal(eqx.nn.Dropout(0.1)), Own(0.3)]
    reasons = {("0", "Dropout", 0.2): "Literal.__call__", ("1", "Own", 0.3): "a class of its own"}
    unreached = {(s.name, s.kind, s.rate): s.unreached for s in sites(model) if s.unreached}
    assert unreached.keys() == reasons.keys()
    assert all(reasons[place] in unreached[place] for place in reasons)
    with pytest.raises(ValueError, match="cannot swap") as raised:
        convert(model, 1.0)
    assert all(f"  {name} ({kind}): " in str(raised.value) for name, kind, _ in reasons)
    with pytest.warns(UnreachedWarning, match="cannot swap"):
        converted = convert(model, 1.0, strict=False)
    assert [type(model[1]), isinstance(converted[0].dropout, QSD)] == [Own, True]


def test_choices():
    first = convert(
        MODEL, 1.0, include=["blocks.*", "by_name.out"], exclude=lambda n, d: d.p == 0.1
    )
    assert [s.name for s in sites(first) if s.kind == "QSD"] == ["blocks.1.dropout", "by_name.out"]
    both = convert(first, 2.0)
    assert [s.alpha for s in sites(both)] == [2.0, 1.0, 2.0, 1.0]
    for model in (both, eqx.nn.Linear(2, 2, key=KEY)):
        with pytest.raises(ValueError, match="no dropout to swap"):
            convert(model, 3.0)
    with pytest.raises(ValueError, match="alpha: expected"):
        convert(MODEL, 0.0)


def test_masks_on_gives_a_model_that_draws():
    model = eqx.nn.inference_mode(convert(MODEL, 1.0, include="blocks.*"))
    with masks_on(model) as drawing:
        flags = [drawing.blocks[0].dropout.inference, drawing.attention.dropout.inference]
        assert flags == [False, True]
        assert bool(jnp.any(drawing(X, key=KEY) != model(X)))
    assert model.blocks[0].dropout.inference is True
    with masks_on(model, native=True) as drawing:
        assert drawing.attention.dropout.inference is False


def test_predictions():
    layer, law, n = (
        convert(eqx.nn.Dropout(0.5, inference=True), 1.0),
        quantal.Dilution(0.5, 1.0),
        4000,
    )
    x = jnp.ones((4, 8))

    def call(model, x, key):
        keys = jax.random.split(key, len(x))
        return {"y": jax.vmap(lambda x, key: model(x, key=key))(x, keys), "rest": (x.argmax(),)}

    prediction = predict_mc(layer, x, n, key=KEY, call=call)
    error = 4 / math.sqrt(n * x.size)  # four standard errors, both of them
    assert abs(prediction.mean["y"].mean() - law.mean) < error * law.std
    assert abs((prediction.std["y"] ** 2).mean() - law.var) < error * math.sqrt(law.moment(4))
    assert prediction.std["rest"][0] == 0
    again = predict_mc(layer, x, n, key=quantal.key(0), call=call)
    np.testing.assert_array_equal(again.mean["y"], prediction.mean["y"])
    with pytest.raises(ValueError, match="n: expected an integer of at least 2"):
        predict_mc(layer, x, 1, key=KEY)


def test_the_mean_gain_is_that_of_the_layer_s_own_law():
    layer = quantal.jax.equinox.QSD(0.5, 1.0, unit_mean=True)
    assert [site.mean_gain for site in quantal.jax.equinox.sites([layer])] == [1]
