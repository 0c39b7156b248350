"""Keras without the private names that the package uses: what is documented happens instead."""

import pickle

import keras
import numpy as np
import pytest
from keras import layers
from zoo import MODELS

from quantal.keras import QSD, _private_api, convert, revert, sites
from quantal.keras._walk import walk
from quantal.sites import UnreachedWarning


def gone(monkeypatch, owner, name):
    """Take a name from the class of Keras that defines it."""
    for cls in owner.__mro__:
        if name in vars(cls):
            monkeypatch.delattr(cls, name)
    assert not hasattr(owner, name)


def test_every_name_is_there_today():
    """If this fails, a new Keras has moved something: see what the module says of that name."""
    version = tuple(int(number) for number in keras.__version__.split(".")[:2])
    for owner, name, since in [
        (layers.Layer, "_build_at_init", (3, 10)),
        (layers.Attention, "_apply_scores", (3, 5)),
        (keras.Model, "_unpickle_model", (3, 5)),
    ]:
        assert version < since or hasattr(owner, name), name
    model = MODELS["heads"]()
    assert hasattr(model, "_layers")
    heads = [node.layer for node in walk(model)]
    assert any(_private_api.dropout_layer(layer) is not None for layer in heads)


def test_without_build_at_init(monkeypatch):
    gone(monkeypatch, layers.Layer, "_build_at_init")
    layer = QSD.__new__(QSD)
    layer.__init__(0.5, 1.0)
    assert layer.built
    assert np.any(keras.ops.convert_to_numpy(layer(np.ones((8, 8)), training=True)) == 0)


@pytest.mark.parametrize("name", ["functional", "subclassed", "block", "bidirectional", "heads"])
def test_without_the_list_of_layers(name, monkeypatch):
    model = MODELS[name]()
    want = {(site.name, site.rate) for site in sites(model)}

    def without(owner, name):
        return name != "_layers" and hasattr(owner, name)

    monkeypatch.setattr(_private_api, "hasattr", without, raising=False)  # Keras itself needs it
    assert {(site.name, site.rate) for site in sites(model)} == want
    convert(model, 0.2)
    assert {site.alpha for site in sites(model)} == {0.2}
    revert(model)
    assert {site.alpha for site in sites(model)} == {None}


def test_without_apply_scores(monkeypatch):
    model = MODELS["attention"]()
    gone(monkeypatch, layers.Attention, "_apply_scores")
    with pytest.raises(ValueError, match=r"cannot swap(?s:.)*has no Attention\._apply_scores"):
        convert(model, 0.2)
    with pytest.warns(UnreachedWarning, match=r"has no Attention\._apply_scores"):
        convert(model, 0.2, strict=False)
    assert [site.alpha for site in sites(model)] == [None]


@pytest.mark.parametrize("name", ["get_dropout_mask", "reset_recurrent_dropout_mask"])
def test_without_masks_of_cells(name, monkeypatch):
    model = keras.Sequential([keras.Input((3, 2)), layers.LSTM(4, dropout=0.2, name="lstm")])
    gone(monkeypatch, layers.LSTMCell, name)
    (site,) = sites(model)
    assert (site.name, site.rate) == ("lstm/cell/dropout", 0.2)
    with pytest.raises(ValueError, match=rf"cannot swap(?s:.)*has no DropoutRNNCell\.{name}"):
        convert(model, 0.2)


def test_without_a_dropout_layer(monkeypatch):
    monkeypatch.setattr(_private_api, "dropout_layer", lambda layer: None)
    model = MODELS["heads"]()
    (layer,) = [n.layer for n in walk(model) if isinstance(n.layer, layers.MultiHeadAttention)]
    assert "_dropout_layer" in _private_api.HeadsHook.missing(layer)
    late = convert(layers.MultiHeadAttention(2, 3, dropout=0.25), 0.2)
    with pytest.raises(RuntimeError, match="_dropout_layer, where its dropout was"):
        late(np.ones((2, 4, 6), np.float32), np.ones((2, 4, 6), np.float32))


def test_without_a_way_to_unpickle(monkeypatch):
    data = pickle.dumps(convert(MODELS["subclassed"](), 0.2))
    gone(monkeypatch, keras.Model, "_unpickle_model")
    with pytest.raises(NotImplementedError, match=r"save the converted model with model\.save"):
        pickle.loads(data)


def test_no_private_name_is_used_elsewhere():
    """By the names that this module fences; the classes' own override is part of it."""
    import ast
    from pathlib import Path

    names = {"_layers", "_build_at_init", "_apply_scores", "_dropout_layer", "_unpickle_model"}
    names |= {"_dropout_mask", "_recurrent_dropout_mask", "_create_dropout_mask", "_nodes"}
    names |= {"_operations", "_flatten_layers", "_modules", "_initial_seed", "src"}
    for path in Path(_private_api.__file__).parent.glob("*.py"):
        if path.name == "_private_api.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.Attribute) and node.attr in names), (path, node.lineno)
            assert not (isinstance(node, ast.Constant) and node.value in names), (path, node.lineno)
