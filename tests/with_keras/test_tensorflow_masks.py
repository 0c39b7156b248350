"""The masks that TensorFlow draws are seen, eagerly and in graphs; other randomness is none."""

import keras
import numpy as np
import pytest

if keras.backend.backend() != "tensorflow":
    pytest.skip("about TensorFlow itself: needs KERAS_BACKEND=tensorflow", allow_module_level=True)

import tensorflow as tf
from tensorflow import random

from quantal.tensorflow._watch import native_masks

X = tf.ones((4, 6, 8))
SEED = (1, 2)


def kept(mask):
    return tf.cast(mask, tf.float32)


def numpy_mask(shape):
    return (np.random.default_rng().random(shape) < 0.9).astype(np.float32)


MASKS = {
    "dropout": lambda x: tf.nn.dropout(x, 0.25),
    "stateless dropout": lambda x: tf.nn.experimental.stateless_dropout(x, 0.25, seed=SEED),
    "uniform": lambda x: x * kept(random.uniform(tf.shape(x)) < 0.9),
    "selected": lambda x: tf.where(random.stateless_uniform(tf.shape(x), SEED) < 0.9, x, 0.0),
    "normal": lambda x: x * kept(random.normal(tf.shape(x)) > -1.0),
    "stateless normal": lambda x: x * kept(random.stateless_normal(tf.shape(x), SEED) > -1.0),
    "integers": lambda x: x * kept(random.uniform(tf.shape(x), 0, 10, tf.int32) < 9),
    "an integer": lambda x: x * kept(random.uniform(tf.shape(x), 0, 10, tf.int32) != 0),
    "one of two": lambda x: x * kept(random.stateless_uniform(tf.shape(x), SEED, 0, 2, tf.int32)),
    "shuffled": lambda x: x * kept(random.shuffle(tf.range(8)) < 6),
    "floor": lambda x: x * tf.floor(random.uniform((4, 1, 1)) + 0.9),
    "on the host": lambda x: x * tf.py_function(lambda: numpy_mask((4, 6, 8)), [], tf.float32),
    "binomial": lambda x: x * random.stateless_binomial((4, 6, 8), SEED, 1.0, 0.9, tf.float32),
}
NO_MASKS = {
    "noise": lambda x: kept(x + random.normal(tf.shape(x)) > 0),
    "uniform noise": lambda x: kept(x + random.uniform(tf.shape(x)) > 0),
    "activated noise": lambda x: x * tf.nn.selu(tf.nn.leaky_relu(random.normal(tf.shape(x)))),
    "a sample of data": lambda x: kept(random.uniform(tf.shape(x)) < tf.sigmoid(x)),
    "an index": lambda x: tf.gather(x, random.uniform((3,), 0, 6, tf.int32), axis=1),
    "an index in Keras": lambda x: keras.ops.take(x, keras.random.randint((3,), 0, 6), axis=1),
    "labels": lambda x: x + tf.one_hot(random.uniform((4, 6), 0, 8, tf.int32), 8),
    "a category": lambda x: random.categorical(x[0], 3),
    "rounded data": lambda x: tf.floor(x + random.uniform(tf.shape(x))),
    "a crop": lambda x: tf.image.random_crop(x, (4, 3, 8)),
    "an order": lambda x: random.shuffle(x),
    "a function on the host": lambda x: tf.numpy_function(np.sinh, [x], tf.float32),
}


def found(function, mode):
    if mode == "eager":
        return native_masks(lambda: function(X))
    graph = tf.function(function, autograph=False)
    return native_masks(lambda: graph.get_concrete_function(tf.TensorSpec((None, 6, 8))))


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("way", MASKS)
def test_every_mask_is_seen(way, mode):
    (mask,) = found(MASKS[way], mode)
    assert np.isnan(mask.rate) or mask.rate in (0.25, 0.1)


@pytest.mark.parametrize("mode", ["eager", "graph"])
@pytest.mark.parametrize("way", NO_MASKS)
def test_nothing_else_is(way, mode):
    assert found(NO_MASKS[way], mode) == []
