"""keras.applications and hand-built models of the usual kinds, with random weights."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before anything imports TensorFlow

import keras
import numpy as np
import pytest
from keras import layers, ops

from quantal.keras import QSD, convert, masks_on, predict_mc, revert, sites

pytestmark = [
    # Keras 3.15, of a layer that leaves it to others to build its parts, when it is loaded.
    pytest.mark.filterwarnings(r"ignore:`build\(\)` was called on layer 'encoder"),
]


@keras.saving.register_keras_serializable("models")
class Encoder(layers.Layer):
    """One block of a Transformer."""

    def __init__(self, width, heads, rate, **kwargs):
        super().__init__(**kwargs)
        self.width, self.heads, self.rate = width, heads, rate
        self.attention = layers.MultiHeadAttention(heads, width // heads, dropout=rate)
        self.feed_forward = keras.Sequential(
            [layers.Dense(2 * width, "gelu"), layers.Dropout(rate), layers.Dense(width)]
        )
        self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]
        self.drops = [layers.Dropout(rate), layers.Dropout(rate)]

    def call(self, x, training=None):
        attended = self.attention(x, x, use_causal_mask=True, training=training)
        x = self.norms[0](x + self.drops[0](attended, training=training))
        fed = self.feed_forward(x, training=training)
        return self.norms[1](x + self.drops[1](fed, training=training))

    def get_config(self):
        own = {"width": self.width, "heads": self.heads, "rate": self.rate}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("models")
class Positions(layers.Layer):
    def build(self, input_shape):
        self.table = self.add_weight(shape=input_shape[1:], initializer="normal")

    def call(self, x):
        return x + self.table


def transformer():
    tokens = keras.Input((12,), dtype="int32")
    x = Positions()(layers.Embedding(50, 16)(tokens))
    x = layers.Dropout(0.1)(x)
    for _ in range(2):
        x = Encoder(16, 2, 0.1)(x)
    return keras.Model(tokens, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def text():
    return keras.Sequential(
        [
            keras.Input((12,), dtype="int32"),
            layers.Embedding(50, 8, mask_zero=True),
            layers.SpatialDropout1D(0.2),
            layers.Bidirectional(layers.LSTM(6, dropout=0.2, return_sequences=True)),
            layers.GRU(6, dropout=0.1, recurrent_dropout=0.1),
            layers.Dropout(0.5),
            layers.Dense(4),
        ]
    )


def vgg():
    blocks = []
    for width in (4, 8):
        blocks += [layers.Conv2D(width, 3, padding="same"), layers.BatchNormalization()]
        blocks += [layers.ReLU(), layers.SpatialDropout2D(0.3), layers.MaxPooling2D()]
    head = [layers.Flatten(), layers.Dense(16, "relu"), layers.Dropout(0.5), layers.Dense(4)]
    return keras.Sequential([keras.Input((32, 32, 3)), *blocks, *head])


def application(name, **arguments):
    model = getattr(keras.applications, name)
    arguments = {"weights": None, "classes": 4, "classifier_activation": None, **arguments}
    return model(input_shape=(32, 32, 3), **arguments)


def efficientnet():
    """The first three stages of EfficientNetB0, two blocks with dropout among them, and a head."""
    whole = application("EfficientNetB0", include_top=False)
    x = layers.GlobalAveragePooling2D()(whole.get_layer("block3b_add").output)
    return keras.Model(whole.input, layers.Dense(4)(layers.Dropout(0.2)(x)))


# Each with the number of its sites and the layers that make them.
MODELS = {
    "EfficientNet": (efficientnet, 3, {"QSD"}),
    "MobileNet": (lambda: application("MobileNet", alpha=0.25, dropout=0.2), 1, {"QSD"}),
    "VGG": (vgg, 3, {"SpatialQSD2D", "QSD"}),
    "Transformer": (transformer, 9, {"QSD", "MultiHeadAttention"}),
    "text": (text, 6, {"SpatialQSD1D", "LSTMCell", "GRUCell", "QSD"}),
}


def example(model, n=8):
    rng = np.random.default_rng(0)
    if model.inputs[0].dtype == "int32":
        x = rng.integers(1, 50, (n, 12)).astype(np.int32)
    else:
        x = rng.normal(size=(n, 32, 32, 3)).astype(np.float32)
    return x, rng.integers(0, 4, n)


def numpy(x):
    return ops.convert_to_numpy(x)


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name, tmp_path):
    make, count, kinds = MODELS[name]
    model = make()
    x, labels = example(model)
    found, output = sites(model), numpy(model(x))
    classes = [(id(layer), type(layer)) for layer in model._flatten_layers()]
    names = [weight.path for weight in model.weights]
    model.save_weights(tmp_path / "before.weights.h5")

    # All sites converted, and the model the same in evaluation.
    convert(model, 0.5)
    assert len(found) == len(sites(model)) == count
    assert {site.alpha for site in sites(model)} == {0.5}
    assert {site.kind for site in sites(model)} == kinds
    assert [site.rate for site in sites(model)] == [site.rate for site in found]
    assert [weight.path for weight in model.weights] == names
    np.testing.assert_array_equal(numpy(model(x)), output)

    # Training runs, compiled as Keras thinks best, and changes the loss.
    crossentropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.01), crossentropy)
    losses = model.fit(x, labels, epochs=3, verbose=0).history["loss"]
    assert len(set(losses)) == 3
    assert np.all(np.isfinite(losses))
    trained = numpy(model(x))
    assert np.any(trained != output)

    # Masks in evaluation, with the statistics of batch normalisation left alone.
    kept = model.get_weights()
    with masks_on(model):
        assert np.any(numpy(model(x)) != numpy(model(x)))
    assert np.max(predict_mc(model, x, 2).std) > 0
    for before, after in zip(kept, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)

    # Files: the whole model, and checkpoints of before and after.
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [(site.kind, site.alpha) for site in sites(loaded)] == [
        (site.kind, site.alpha) for site in sites(model)
    ]
    np.testing.assert_allclose(numpy(loaded(x)), trained, rtol=1e-4, atol=1e-5)
    model.save_weights(tmp_path / "after.weights.h5")
    other = make()
    other.load_weights(tmp_path / "after.weights.h5")
    np.testing.assert_array_equal(numpy(other(x)), trained)
    other = convert(make(), 0.5)
    other.load_weights(tmp_path / "before.weights.h5")
    np.testing.assert_array_equal(numpy(other(x)), output)

    # And back.
    revert(model)
    assert [(id(layer), type(layer)) for layer in model._flatten_layers()] == classes
    assert sites(model) == found
    np.testing.assert_array_equal(numpy(model(x)), trained)


def test_a_large_model():
    """EfficientNetB0 as it is: every site converted, evaluation as before, and masks if asked."""
    model = application("EfficientNetB0")
    x, _ = example(model, 2)
    found, output = sites(model), numpy(model(x))
    convert(model, 0.5)
    assert [(site.kind, site.alpha) for site in sites(model)] == [("QSD", 0.5)] * 10
    np.testing.assert_array_equal(numpy(model(x)), output)
    with masks_on(model):
        assert np.any(numpy(model(x)) != output)
    revert(model)
    assert sites(model) == found
    np.testing.assert_array_equal(numpy(model(x)), output)


def test_a_model_within_a_model():
    backbone = application("MobileNet", alpha=0.25, dropout=0.2)
    inputs = keras.Input((32, 32, 3))
    model = keras.Model(inputs, layers.Dense(2)(layers.Dropout(0.5)(backbone(inputs))))
    backbone.trainable = False
    convert(model, 0.5)
    assert isinstance(backbone.get_layer("dropout"), QSD)
    assert len(sites(model)) == 2
    assert len(model.trainable_weights) == 2
