"""Masks in evaluation on one backend: masks_on and predict_mc."""

import math

import keras
import numpy as np
import pytest
from keras import layers, ops
from zoo import MODELS, example, sequence

import quantal
from quantal.keras import QSD, convert, masks_on, predict_mc

pytestmark = [
    # torch 2.13's compiler uses what torch deprecates, and looks at the .grad of every tensor.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning:torch"),
    pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf"),
]


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("name", MODELS)
def test_masks_are_on_inside_only(name):
    model = convert(MODELS[name](), 0.2)
    x = example(model)
    want, weights = numpy(model(x)), model.get_weights()
    attributes = [set(vars(layer)) for layer in model._flatten_layers()]
    with masks_on(model) as entered:
        assert entered is model
        one, two = (numpy(model(x, training=False)) for _ in range(2))
        assert np.any(one != two)
        assert np.any(one != want)
    np.testing.assert_array_equal(numpy(model(x)), want)
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)  # of batch normalisation, too
    assert [set(vars(layer)) for layer in model._flatten_layers()] == attributes


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    "name", ["functional", "lstm, recurrent", "stacked cells", "heads", "attention"]
)
def test_native_dropout_is_on_only_if_asked(name, native):
    # With alpha 1e6 and a rate of nearly 0, QSD hardly changes a thing: what does is native.
    model = keras.Sequential([MODELS[name](), QSD(1e-7, 1e6)])
    x = example(model.layers[0])
    want = numpy(model(x))
    with masks_on(model, native=native):
        near = np.allclose(numpy(model(x)), want, atol=1e-3)
    assert near != native
    np.testing.assert_array_equal(numpy(model(x)), want)


@pytest.mark.parametrize("native", [False, True])
def test_a_cell_that_is_half_converted(native):
    """With alpha 1e6 and a rate of nearly 0, QSD hardly changes a thing: what does is native."""
    model = sequence(layers.LSTM(3, dropout=0.5, recurrent_dropout=1e-7))
    convert(model, 1e6, include="*/recurrent_dropout")
    x = example(model)
    want = numpy(model(x))
    with masks_on(model, native=native):
        near = np.allclose(numpy(model(x)), want, atol=1e-3)
    assert near != native


@pytest.mark.parametrize(
    "arguments", [{"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}]
)
def test_predict_and_evaluate_are_traced_anew(arguments):
    layer = QSD(0.5, 0.2, seed=1)
    model = sequence(layers.Dense(4, kernel_initializer="identity"), layer)
    model.compile("sgd", "mse", **arguments)
    x = np.ones((8, 6, 4), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(model.predict(x, verbose=0), x)
        assert model.evaluate(x, x, verbose=0) == 0
        alone = QSD(0.5, 0.2, seed=1)
        alone.seed_generator.state.assign(numpy(layer.seed_generator.state))
        with masks_on(model):
            for _ in range(2):
                want = numpy(alone(ops.ones(x.shape), training=True))
                np.testing.assert_array_equal(model.predict(x, verbose=0), want)
            assert model.evaluate(x, x, verbose=0) > 0
    np.testing.assert_array_equal(model.predict(x, verbose=0), x)
    assert model.evaluate(x, x, verbose=0) == 0


def test_after_an_exception():
    model = convert(MODELS["subclassed"](), 0.2)
    x = example(model)
    want = numpy(model(x))
    with pytest.raises(RuntimeError, match="stop"), masks_on(model):
        raise RuntimeError("stop")
    np.testing.assert_array_equal(numpy(model(x)), want)


def test_contexts_nest():
    layer, x = QSD(0.5, 0.2), ops.ones((8, 8))
    with masks_on(layer):
        with masks_on(layer):
            pass
        assert np.any(numpy(layer(x)) != 1)
    assert layer(x) is x


def test_mean_and_standard_deviation():
    """Of n draws of 128 units, of a known law, each within four standard errors."""
    rate, alpha, n = 0.5, 1.0, 25
    law = quantal.Dilution(rate, alpha)
    model = keras.Sequential([keras.Input((16,)), QSD(rate, alpha, seed=1)])
    mean, std = predict_mc(model, np.ones((8, 16), np.float32), n)
    assert mean.dtype == std.dtype == np.float32
    error = 4 / math.sqrt(n * mean.size)
    assert abs(mean.mean() - law.mean) < error * law.std
    fourth = sum(math.comb(4, k) * law.moment(k) * (-law.mean) ** (4 - k) for k in range(5))
    # The variance of a sample, divided by n - 1, is right on average.
    spread = math.sqrt(fourth - law.var**2 * (n - 3) / (n - 1))
    assert abs((std**2).mean() - law.var) < error * spread
    np.testing.assert_array_equal(model.predict(np.ones((8, 16)), verbose=0), 1)


def test_two_draws_by_hand():
    model = keras.Sequential([keras.Input((4,)), QSD(0.5, 1.0, seed=1)])
    alone = QSD(0.5, 1.0, seed=1)
    drawn = [numpy(alone(ops.ones((3, 4)), training=True)) for _ in range(5)]
    mean, std = predict_mc(model, np.ones((3, 4), np.float32), 5)
    np.testing.assert_allclose(mean, np.mean(drawn, 0), rtol=1e-6)
    np.testing.assert_allclose(std, np.std(drawn, 0, ddof=1), rtol=1e-6, atol=1e-7)


def test_structures_and_native_dropout():
    inputs = keras.Input((4,))
    dropped = layers.Dropout(0.5)(inputs)
    model = keras.Model(inputs, {"a": dropped, "b": [inputs, dropped]})
    x = np.ones((3, 4), np.float32)
    mean, std = predict_mc(model, x, 20, native=True)
    np.testing.assert_array_equal(mean["b"][0], x)
    assert np.all(std["a"] > 0)  # 12 units, each the same 20 times once in 500,000
    with pytest.raises(ValueError, match="n: expected an integer of at least 2"):
        predict_mc(model, x, 1)


def test_samples_and_a_function_of_the_output():
    model = keras.Sequential([keras.Input((4,)), QSD(0.5, 1.0, seed=1)])
    alone = QSD(0.5, 1.0, seed=1)
    drawn = np.stack([numpy(alone(ops.ones((3, 4)), training=True)) for _ in range(5)])
    got = predict_mc(model, np.ones((3, 4), np.float32), 5, output=np.square, samples=True)
    np.testing.assert_array_equal(got.samples, drawn**2)
    np.testing.assert_allclose(got.mean, np.mean(drawn**2, 0), rtol=1e-6)
    mean, std = got
    assert mean is got.mean
    assert std is got.std
    assert predict_mc(model, np.ones((3, 4), np.float32), 2).samples is None


@pytest.mark.parametrize("dtype", ["int32", "bool"])
def test_the_mean_of_whole_numbers_is_none(dtype):
    model = keras.Sequential([keras.Input((8,)), QSD(0.5, 1.0, seed=1)])
    got = predict_mc(
        model, np.ones((3, 8)), 5, output=lambda y: (y > 0).astype(dtype), samples=True
    )
    np.testing.assert_allclose(got.mean, np.mean(got.samples, 0), rtol=1e-6)
    np.testing.assert_allclose(got.std, np.std(got.samples, 0, ddof=1), rtol=1e-6)
    assert got.mean.dtype == got.std.dtype == np.float32
    assert np.any((got.mean > 0) & (got.mean < 1))


@pytest.mark.parametrize("native", [False, True])
def test_nothing_to_draw(native):
    x = np.ones((3, 4), np.float32)
    model = keras.Sequential([keras.Input((4,)), layers.Dense(2)])
    if not native:
        model.add(layers.Dropout(0.5))
    with (
        pytest.raises(ValueError, match="model: expected one with QSD"),
        masks_on(model, native=native),
    ):
        pass
    with pytest.raises(ValueError, match="model: expected one with QSD"):
        predict_mc(model, x, 3, native=native)
