"""Training converted models: what compile made stays, and what was traced goes."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from zoo import MODELS, example, sequence

from quantal.keras import QSD, convert, revert

pytestmark = [
    # torch 2.13's compiler uses what torch deprecates, and looks at the .grad of every tensor.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning:torch"),
    pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf"),
]

MODES = {
    "eager": {"run_eagerly": True},
    "graph": {"jit_compile": False},
    "compiled": {"jit_compile": True},
}


def numpy(x):
    return ops.convert_to_numpy(x)


def meter(layer, **arguments):
    """Return a compiled model whose loss is the mean output of the layer, training nothing."""
    dense = layers.Dense(4, kernel_initializer="identity")
    model = keras.Sequential([keras.Input((4,)), dense, layer])
    model.compile(
        keras.optimizers.SGD(0.0),
        loss=lambda y, prediction: ops.mean(prediction) + 0 * ops.mean(y),
        **arguments,
    )
    return model


def loss(model):
    ones = np.ones((8, 4), np.float32)
    model.reset_metrics()  # Keras 3.5 would return the mean of all steps
    return float(model.train_on_batch(ones, ones))


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_has_been_trained_trains_with_qsd(mode):
    """Functions that were traced before conversion, or before revert, are not used after it."""
    dropout = layers.Dropout(0.5, seed=1)
    model = meter(dropout, **MODES[mode])
    possible = np.arange(33) / 16  # of 32 units, each 0 or 2
    np.testing.assert_allclose(np.min(np.abs(loss(model) - possible)), 0, atol=1e-6)
    seeds = numpy(dropout.seed_generator.state)
    convert(model, 0.2)
    alone = QSD(0.5, 0.2, seed=1)
    alone.seed_generator.state.assign(seeds)
    for _ in range(2):
        want = numpy(alone(ops.ones((8, 4)), training=True)).mean(dtype=np.float64)
        np.testing.assert_allclose(loss(model), want, rtol=1e-6)  # a float32 mean of 32 numbers
    revert(model)
    np.testing.assert_allclose(np.min(np.abs(loss(model) - possible)), 0, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["subclassed", "functional", "lstm", "lstm, recurrent", "attention"]
)
def test_training(name, mode):
    if (keras.backend.backend(), mode) == ("torch", "compiled") and name != "functional":
        pytest.skip("torch.compile of this model takes minutes")
    model = MODELS[name]()
    x = example(model, 16)
    y = np.random.default_rng(1).normal(size=numpy(model(x)).shape).astype(np.float32)
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), "mse", **MODES[mode])
    model.fit(x, y, epochs=1, batch_size=8, verbose=0)
    optimizer, slots = model.optimizer, [numpy(v) for v in model.optimizer.variables]
    convert(model, 0.2)
    assert model.compiled
    assert model.optimizer is optimizer
    for kept, variable in zip(slots, optimizer.variables, strict=True):
        np.testing.assert_array_equal(kept, numpy(variable))
    before = [numpy(w) for w in model.trainable_weights]
    history = model.fit(x, y, epochs=4, batch_size=8, verbose=0).history["loss"]
    assert len(set(history)) == 4
    assert np.all(np.isfinite(history))
    assert int(optimizer.iterations) == 10
    after = [numpy(w) for w in model.trainable_weights]
    assert all(np.any(a != b) for a, b in zip(before, after, strict=True))
    trained = numpy(model(x))
    revert(model)  # keeps what was trained
    np.testing.assert_array_equal(numpy(model(x)), trained)
    model.fit(x, y, epochs=1, batch_size=8, verbose=0)
    assert int(optimizer.iterations) == 12


def test_a_shared_layer_draws_for_each_use():
    layer = layers.Dropout(0.5, seed=1)
    inputs = keras.Input((64,))
    model = keras.Model(inputs, [layer(inputs), layer(inputs)])
    convert(model, 0.2)
    assert model.layers.count(layer) == 1
    one, two = (numpy(y) for y in model(np.ones((8, 64), np.float32), training=True))
    assert np.any(one != two)
    alone = QSD(0.5, 0.2, seed=1)
    drawn = [numpy(alone(ops.ones((8, 64)), training=True)) for _ in range(2)]
    drawn = drawn if np.all(drawn[0] == one) else drawn[::-1]  # in the order that Keras likes
    np.testing.assert_array_equal([one, two], drawn)


def test_mixed_precision():
    model = sequence(layers.Dropout(0.5, dtype="mixed_bfloat16"), layers.LSTM(3, dropout=0.25))
    convert(model, 0.2)
    y = model(np.ones((2, 6, 4), np.float32), training=True)
    assert np.all(np.isfinite(numpy(ops.cast(y, "float32"))))
    assert model.layers[0].compute_dtype == "bfloat16"
