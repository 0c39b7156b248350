"""convert, revert and sites on one backend: what is swapped, and what stays as it was."""

import math

import keras
import numpy as np
import pytest
from keras import layers, ops
from zoo import MODELS, Block, LateBlock, Net, example, sequence

import quantal
import quantal.keras
from quantal.keras import QSD, SpatialQSD2D, convert, revert, sites
from quantal.sites import UnreachedWarning


def numpy(x):
    return ops.convert_to_numpy(x)


def state(layer):
    """Return what identifies every layer of a model: class, and attributes but for objects."""
    plain = (bool, int, float, str, tuple, type(None))
    return [
        (id(each), type(each), {k: v for k, v in vars(each).items() if isinstance(v, plain)})
        for each in layer._flatten_layers()
    ]


@pytest.mark.parametrize("name", MODELS)
def test_every_kind(name):
    model = MODELS[name]()
    x = example(model)
    model(x, training=True)  # which moves statistics, and sets attributes that Keras sets late
    before, output = state(model), numpy(model(x))
    weights, paths = model.weights, [w.path for w in model.weights]
    variables = model.non_trainable_variables
    found = sites(model)
    assert found
    assert all(site.alpha is None and not site.unreached for site in found)

    assert convert(model, 0.2) is model
    np.testing.assert_array_equal(numpy(model(x)), output)
    assert [id(w) for w in model.weights] == [id(w) for w in weights]
    assert [w.path for w in model.weights] == paths
    assert [id(v) for v in model.non_trainable_variables] == [id(v) for v in variables]
    assert [site.name for site in sites(model)] == [site.name for site in found]
    assert [site.rate for site in sites(model)] == [site.rate for site in found]
    assert {site.alpha for site in sites(model)} == {0.2}
    kept = model.get_weights()
    one, two = (numpy(model(x, training=True)) for _ in range(2))
    assert np.any(one != two)
    assert np.all(np.isfinite(one))
    model.set_weights(kept)  # of batch normalisation

    assert revert(model) is model
    np.testing.assert_array_equal(numpy(model(x)), output)
    assert state(model) == before
    assert sites(model) == found


def test_names_and_summary():
    model = convert(MODELS["functional"](), 1.0)
    layer = model.get_layer("shared")
    assert isinstance(layer, QSD)
    assert (layer.rate, layer.alpha, layer.seed) == (0.5, 1.0, 1)
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line))
    assert any("shared" in line and "QSD" in line for line in "\n".join(lines).splitlines())


def test_names_of_sites():
    model = MODELS["subclassed"]()
    inside = [layer.name for layer in (*model.head.layers, *model.graph.layers)]
    assert [site.name for site in sites(model)] == [
        "block/attention/dropout",
        "block/parts/1",
        *(f"head/{name}" for name in inside if name.startswith("dropout")),
        *(f"graph/{name}" for name in inside if name.startswith("spatial")),
    ]
    names = [site.name for site in sites(MODELS["lstm, recurrent"]())]
    assert [name.split("/", 1)[1] for name in names] == ["cell/dropout", "cell/recurrent_dropout"]


def coefficients(rate, alpha, shape, calls=1, **arguments):
    """Return what a QSD layer of this seed draws in its first calls."""
    layer = QSD(rate, alpha, seed=1, **arguments)
    return [numpy(layer(ops.ones(shape), training=True)) for _ in range(calls)]


def test_a_layer_draws_as_qsd_of_its_seed():
    layer = convert(layers.Dropout(0.5, seed=1, noise_shape=(None, 1)), 0.2)
    got = [numpy(layer(ops.ones((8, 4)), training=True)) for _ in range(2)]
    np.testing.assert_array_equal(got, coefficients(0.5, 0.2, (8, 4), 2, noise_shape=(None, 1)))


def test_a_spatial_layer_draws_as_qsd_of_its_seed():
    layer = convert(layers.SpatialDropout2D(0.5, "channels_first", seed=1), 0.2)
    assert isinstance(layer, SpatialQSD2D)
    got = numpy(layer(ops.ones((8, 4, 3, 3)), training=True))
    np.testing.assert_array_equal(
        got, coefficients(0.5, 0.2, (8, 4, 3, 3), broadcast_dims=(2, 3))[0]
    )


def test_a_recurrent_layer_draws_one_mask_for_all_steps():
    """A cell that adds up its inputs gives the number of steps times the coefficients."""
    layer = layers.SimpleRNN(
        5, "linear", dropout=0.5, seed=1, kernel_initializer="identity",
        recurrent_initializer="identity", use_bias=False,
    )  # fmt: skip
    x = ops.ones((4, 3, 5))
    layer(x)
    seeds = numpy(layer.cell.seed_generator.state)
    convert(layer, 0.2)
    got = numpy(layer(x, training=True))
    drawn = QSD(0.5, 0.2, seed=1)
    drawn.seed_generator.state.assign(seeds)
    np.testing.assert_allclose(got, 3 * numpy(drawn(ops.ones((4, 5)), training=True)), rtol=1e-6)


def test_recurrent_masks_of_every_gate():
    cell = layers.LSTMCell(3, dropout=0.25, recurrent_dropout=0.5, seed=1)
    convert(cell, 0.2, include="recurrent_dropout")
    masks = [
        cell.get_recurrent_dropout_mask(ops.ones((16, 3))),
        cell.get_dropout_mask(ops.ones((16, 4))),  # Keras's own
    ]
    if not isinstance(masks[1], list):  # in Keras 3.5, all gates share one
        assert not isinstance(masks[0], list)
        masks = [[mask] for mask in masks]
    ours, theirs = (np.stack([numpy(mask) for mask in each]) for each in masks)
    gates = len(theirs)
    assert gates in (1, 4)
    np.testing.assert_array_equal(ours, coefficients(0.5, 0.2, (16, 3), gates))
    assert theirs.shape == (gates, 16, 4)
    np.testing.assert_allclose(np.unique(theirs), [0, 4 / 3], rtol=1e-6)  # Keras's own


@pytest.mark.parametrize("kind", [layers.Attention, layers.AdditiveAttention])
def test_attention_weights_are_diluted(kind):
    layer = kind(dropout=0.5, seed=1)
    q, v = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    _, weights = layer([q, v], return_attention_scores=True)
    convert(layer, 0.2)
    output, diluted = layer([q, v], return_attention_scores=True, training=True)
    want = numpy(weights) * coefficients(0.5, 0.2, (3, 4, 4))[0]
    np.testing.assert_allclose(numpy(diluted), want, rtol=1e-6)
    np.testing.assert_allclose(numpy(output), numpy(diluted) @ v, rtol=1e-4, atol=1e-6)


def test_heads_are_converted_before_they_are_built():
    layer = layers.MultiHeadAttention(2, 3, dropout=0.5, seed=1)
    assert sites(convert(layer, 0.2))[0].alpha == 0.2
    x = np.ones((2, 4, 6), np.float32)
    layer(x, x)
    assert isinstance(layer._dropout_layer, QSD)
    assert np.any(numpy(layer(x, x, training=True)) != numpy(layer(x, x, training=True)))
    inputs = keras.Input((4, 6))
    other = convert(Block(6), 0.2)
    model = keras.Model(inputs, other(inputs))  # built by a graph
    assert np.any(numpy(model(x, training=True)) != numpy(model(x)))
    revert(layer)
    assert type(layer) is layers.MultiHeadAttention
    assert type(layer._dropout_layer) is layers.Dropout


def test_unbuilt_models():
    model = convert(keras.Sequential([layers.Dense(3), layers.Dropout(0.5)]), 0.2)
    x = np.ones((2, 4), np.float32)
    model(x)
    assert np.any(numpy(model(x, training=True)) != numpy(model(x)))
    net = convert(Net(), 0.2)
    net(np.ones((2, 6, 4), np.float32))
    assert {site.alpha for site in sites(net)} == {0.2}
    with pytest.raises(ValueError, match=r"layers\.Dropout.*made by build: build the model first"):
        convert(LateBlock(), 0.2)


def test_alpha_may_depend_on_the_rate():
    model = convert(MODELS["subclassed"](), lambda rate: 10 * rate)
    assert all(site.alpha == 10 * site.rate for site in sites(model))


def test_include_and_exclude():
    model = convert(MODELS["subclassed"](), 1.0, include="block/*", exclude="*/attention/*")
    assert [site.name for site in sites(model) if site.alpha] == ["block/parts/1"]
    convert(model, 2.0, include=lambda name, layer: name.startswith("block"))
    assert [site.alpha for site in sites(model)][:2] == [2.0, 1.0]
    assert not [site for site in sites(revert(model)) if site.alpha]


def test_nothing_to_swap():
    model = sequence(layers.Dense(3), layers.LSTM(2), layers.Dense(2))
    before = state(model)
    with pytest.raises(ValueError, match="no dropout to swap"):
        convert(model, 1.0)
    with pytest.warns(UnreachedWarning, match="no dropout to swap"):
        assert convert(model, 1.0, strict=False) is model
    assert state(model) == before
    assert revert(model) is model
    assert state(model) == before
    model = convert(MODELS["functional"](), 1.0)
    with pytest.raises(ValueError, match="no dropout to swap"):
        convert(model, 2.0)
    assert {site.alpha for site in sites(model)} == {1.0}


def test_qsd_layers_stay():
    mine = QSD(0.5, 3.0, name="mine")
    model = convert(sequence(mine, layers.Dropout(0.5, name="theirs")), 1.0)
    assert [site.alpha for site in sites(model)] == [3.0, 1.0]
    revert(model)
    assert [site.alpha for site in sites(model)] == [3.0, None]
    assert type(model.get_layer("mine")) is QSD


def test_a_changed_law_is_kept():
    model = convert(sequence(layers.Dropout(0.5, name="drop")), 1.0)
    layer = model.get_layer("drop")
    layer.rate, layer.alpha = 0.25, 2.0
    assert [(site.rate, site.alpha) for site in sites(model)] == [(0.25, 2.0)]
    assert type(revert(model).get_layer("drop")) is layers.Dropout
    assert layer.rate == 0.25
    assert layer.get_config()["rate"] == 0.25


def test_frozen_layers():
    model = MODELS["block"]()
    model.layers[0].trainable = False
    before = [w.path for w in model.trainable_weights]
    convert(model, 1.0)
    assert [w.path for w in model.trainable_weights] == before
    assert not model.layers[0].trainable


# --- out of reach --------------------------------------------------------------------------------


class Own(layers.Dropout):
    def call(self, inputs, training=False):
        return super().call(inputs, training=True)


class Inline(layers.Layer):
    def __init__(self):
        super().__init__()
        self.dropout = layers.Dropout(0.1)
        self.seeds = keras.random.SeedGenerator(0)

    def build(self, input_shape):
        self.dropout.build(input_shape)  # or else Keras 3.5 warns

    def call(self, x, training=None):
        return self._drop(self.dropout(x, training=training)) if training else x

    def _drop(self, x):
        return keras.random.dropout(x, 0.25, seed=self.seeds)


def helper(x):
    return keras.random.dropout(x, 0.25, seed=SEEDS)


class Helped(layers.Layer):
    def call(self, x, training=None):
        return helper(x) if training else x


class Aliased(layers.Layer):
    def call(self, x, training=None):
        drop = keras.random.dropout
        return drop(x, 0.25, seed=SEEDS) if training else x


class Making(layers.Layer):
    def call(self, x, training=None):
        return layers.Dropout(0.25, seed=1)(x, training=training)


class Calling(layers.Layer):
    def call(self, x, training=None):
        return GLOBAL(x, training=training)


SEEDS = keras.random.SeedGenerator(0)
GLOBAL = layers.Dropout(0.25)
closed = layers.Dropout(0.25)
UNREACHED = {
    "helper": (Helped, "keras.random.dropout", 0.25, "a function called in helper"),
    "alias": (Aliased, "drop", 0.25, "a function called in Aliased.call"),
    "made in a call": (Making, "layers.Dropout", 0.25, "a layer made in Making.call"),
    "untracked": (Calling, "Dropout", 0.25, "that Keras does not track, called in Calling.call"),
    "lambda with a layer": (
        lambda: layers.Lambda(lambda x: closed(x, training=True)),
        "Dropout", 0.25, "that Keras does not track, called in <lambda>",
    ),
    "lambda with a helper": (
        lambda: layers.Lambda(helper),
        "keras.random.dropout", 0.25, "a function called in helper",
    ),
    "subclass": (lambda: Own(0.5), "Own", 0.5, "a subclass of Dropout"),
    "gaussian": (lambda: layers.GaussianDropout(0.5), "GaussianDropout", 0.5, "another law"),
    "alpha": (lambda: layers.AlphaDropout(0.5), "AlphaDropout", 0.5, "another law"),
    "code": (Inline, "keras.random.dropout", 0.25, "a function called in Inline._drop"),
    "lambda": (
        lambda: layers.Lambda(lambda x: keras.random.dropout(x, 0.5)),
        "keras.random.dropout", 0.5, "a function called in <lambda>",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", UNREACHED)
def test_out_of_reach(case):
    make, kind, rate, reason = UNREACHED[case]
    model = sequence(layers.Dense(4), make(), layers.Dropout(0.5, name="last"))
    model.layers[1].name = "odd"
    before = state(model)
    with pytest.raises(ValueError, match=rf"convert cannot swap(?s:.)*odd \({kind}\): .*{reason}"):
        convert(model, 1.0)
    assert state(model) == before
    (site,) = [site for site in sites(model) if site.unreached]
    assert (site.name, site.kind) == ("odd", kind)
    np.testing.assert_equal(site.rate, rate)
    with pytest.warns(UnreachedWarning, match=reason):
        convert(model, 1.0, strict=False)
    assert sites(model)[-1].alpha == 1.0
    assert sites(revert(model))[-1].alpha is None
    convert(model, 1.0, exclude="odd")
    assert sites(model)[-1].alpha == 1.0


def test_a_call_of_a_layer_named_dropout_is_no_function():
    assert [site.kind for site in sites(Block(4))] == ["MultiHeadAttention", "Dropout"]
    assert [site.unreached for site in sites(Inline())] != ["", ""]


def test_messages():
    model = MODELS["functional"]()
    with pytest.raises(ValueError, match="alpha: expected a number above 0"):
        convert(model, 0)
    with pytest.raises(ValueError, match="alpha: expected a number above 0"):
        convert(model, lambda rate: -rate)
    assert {site.alpha for site in sites(model)} == {None}


def test_dropout_of_infinite_alpha_has_its_law():
    layer = convert(layers.Dropout(0.5), math.inf)
    drawn = numpy(layer(ops.ones((64, 64)), training=True))
    assert set(np.unique(drawn)) == {0, 2}
    assert quantal.Dilution(0.5, math.inf).mean == 1


def test_the_mean_gain_is_that_of_the_layer_s_own_law():
    model = keras.Sequential([keras.Input((4,)), quantal.keras.QSD(0.5, 1.0, unit_mean=True)])
    assert [site.mean_gain for site in quantal.keras.sites(model)] == [1]
