"""Saving converted models: files, copies, and checkpoints of the model before and after."""

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, ops
from zoo import MODELS, Wrapped, example, keras_can_load, sequence

from quantal.keras import convert, revert, sites

# Keras, of layers that leave it to others to build their parts, when they are loaded: 3.5 of both.
pytestmark = pytest.mark.filterwarnings(
    r"ignore:`build\(\)` was called on layer '(wrapped|block):UserWarning"
)


def numpy(x):
    return ops.convert_to_numpy(x)


def laws(model):
    return [(site.kind, site.rate, site.alpha) for site in sites(model)]


LOAD = """
import sys, pathlib, numpy as np, keras, zoo, quantal.keras
from quantal.keras import revert, sites
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.keras")):
    keras.utils.set_random_seed(0)
    model = keras.saving.load_model(path)
    x = np.load(path.with_suffix(".npy"))
    output = keras.ops.convert_to_numpy(model(x))
    laws = repr([(site.kind, site.rate, site.alpha) for site in sites(model)])
    drawn = [keras.ops.convert_to_numpy(model(x, training=True)) for _ in range(2)]
    reverted = repr([(site.kind, site.alpha) for site in sites(revert(model))])
    np.savez(path.with_suffix(".npz"), output=output, laws=laws, drawn=drawn, reverted=reverted)
"""


def test_loading_in_a_fresh_process(tmp_path):
    models, outputs = {}, {}
    for name, make in MODELS.items():
        if not keras_can_load(make()):
            continue
        models[name] = convert(make(), lambda rate: 1 + rate, exclude="*/attention/*")
        x = example(models[name])
        outputs[name] = numpy(models[name](x))
        models[name].save(tmp_path / f"{name}.keras")
        np.save(tmp_path / f"{name}.npy", x)
    here = Path(__file__).parent
    subprocess.run([sys.executable, "-c", LOAD, str(tmp_path)], check=True, timeout=300, cwd=here)
    for name, model in models.items():
        loaded = np.load(tmp_path / f"{name}.npz")
        assert str(loaded["laws"]) == repr(laws(model)), name
        np.testing.assert_allclose(loaded["output"], outputs[name], rtol=1e-4, atol=1e-5)
        assert np.any(loaded["drawn"][0] != loaded["drawn"][1]), name
        original = [(site.kind, site.alpha) for site in sites(revert(model))]
        assert str(loaded["reverted"]) == repr(original), name


@pytest.mark.parametrize("name", MODELS)
def test_checkpoints_load_both_ways(name, tmp_path):
    before, after = MODELS[name](), convert(MODELS[name](), 0.2)
    x = example(before)
    want = [numpy(model(x)) for model in (before, after)]
    before.save_weights(tmp_path / "before.weights.h5")
    after.save_weights(tmp_path / "after.weights.h5")
    after.load_weights(tmp_path / "before.weights.h5")
    before.load_weights(tmp_path / "after.weights.h5")
    np.testing.assert_array_equal(numpy(after(x)), want[0])
    np.testing.assert_array_equal(numpy(before(x)), want[1])


@pytest.mark.parametrize("name", ["functional", "subclassed", "late", "lstm, recurrent", "heads"])
def test_copies(name):
    if not keras_can_load(MODELS[name]()):
        pytest.skip("this version of Keras cannot load the model itself")
    model = convert(MODELS[name](), 0.2)
    x = example(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(numpy(other(x)), numpy(model(x)), rtol=1e-5, atol=1e-6)
        assert laws(other) == laws(copy.deepcopy(other)) == laws(model)
        assert laws(revert(other)) == laws(MODELS[name]())
    assert {site.alpha for site in sites(model)} == {0.2}


def test_clones():
    model = convert(MODELS["functional"](), 0.2)
    clone = keras.models.clone_model(model)
    assert laws(clone) == laws(model)
    assert clone.get_layer("shared") is not model.get_layer("shared")
    wrapped = layers.Bidirectional(convert(layers.LSTM(3, dropout=0.25, name="lstm"), 0.2))
    assert [site.alpha for site in sites(wrapped)] == [0.2, 0.2]
    assert wrapped.backward_layer.name == "backward_lstm"
    assert wrapped.backward_layer.go_backwards


def test_saving_changes_nothing(tmp_path):
    model = convert(MODELS["subclassed"](), 0.2)
    before = [(id(layer), type(layer)) for layer in model._flatten_layers()]
    layer = model.block.parts[1]
    attributes = dict(vars(layer))
    model.save(tmp_path / "model.keras")
    assert [(id(layer), type(layer)) for layer in model._flatten_layers()] == before
    assert vars(layer) == attributes


def test_a_loaded_model_that_is_saved_before_it_is_called(tmp_path):
    layer = convert(MODELS["late"](), 0.2).layers[0]
    other = type(layer).from_config(layer.get_config())
    other = type(other).from_config(other.get_config())
    assert not [site for site in sites(other) if not site.unreached]  # its dropout is not there yet
    other(np.ones((2, 6, 4), np.float32))
    assert [site.alpha for site in sites(other)] == [0.2]
    assert type(revert(other)) is Wrapped


CONFIGURED = {
    "dropout": lambda: layers.Dropout(0.25, noise_shape=(None, 1, 4), seed=1),
    "spatial": lambda: layers.SpatialDropout1D(0.25),
    "lstm": lambda: layers.LSTM(3, dropout=0.25, recurrent_dropout=0.5),
    "heads": lambda: layers.MultiHeadAttention(2, 3, dropout=0.25),
    "bidirectional": lambda: layers.Bidirectional(layers.GRU(3, dropout=0.25)),
    "time distributed": lambda: layers.TimeDistributed(layers.Dropout(0.25)),
}


@pytest.mark.parametrize("kind", CONFIGURED)
def test_the_configuration_is_that_of_the_layer_before(kind):
    """Tools read it, and change it, as they do with Keras's own layers."""
    layer = CONFIGURED[kind]()
    before = layer.get_config()
    convert(layer, 0.2)
    after = layer.get_config()
    assert {name: after[name] for name in before if name != "layer"} == {
        name: before[name] for name in before if name != "layer"
    }
    json.dumps(after)
    again = type(layer).from_config({**after, "name": "changed"})
    assert again.name == "changed"
    assert {site.alpha for site in sites(again)} == {0.2}
    assert {site.rate for site in sites(again)} == {site.rate for site in sites(layer)}
    assert revert(again).get_config() == {**before, "name": "changed"}


def test_a_rate_changed_in_the_configuration():
    layer = convert(layers.Dropout(0.25), 0.2)
    again = type(layer).from_config({**layer.get_config(), "rate": 0.5})
    assert (again.rate, again.alpha) == (0.5, 0.2)
    native = layers.Dropout(0.25)
    assert type(native).from_config({**native.get_config(), "rate": 0.5}).rate == 0.5


def test_a_configuration_that_does_not_fit():
    layer = convert(MODELS["late"](), 0.2).layers[0]
    config = layer.get_config()
    config["quantal"]["alphas"][0][0] = [0, 7]
    other = type(layer).from_config(config)
    with pytest.raises(ValueError, match="no dropout at"):
        other(np.ones((2, 6, 4), np.float32))


def test_compiled_models_stay_compiled_in_files(tmp_path):
    model = sequence(layers.Dense(4), layers.Dropout(0.5), layers.Dense(1))
    for each in (model, MODELS["subclassed"]()):
        each.compile(keras.optimizers.SGD(0.125, momentum=0.9), "mse")
        x = example(each)
        each.fit(x, numpy(each(x)), epochs=1, verbose=0)
        convert(each, 0.2).save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        assert float(loaded.optimizer.learning_rate) == 0.125
        assert int(loaded.optimizer.iterations) == int(each.optimizer.iterations) == 1
        for ours, theirs in zip(each.optimizer.variables, loaded.optimizer.variables, strict=True):
            np.testing.assert_array_equal(numpy(ours), numpy(theirs))
        loaded.fit(x, numpy(each(x)), epochs=1, verbose=0)
