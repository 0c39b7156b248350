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
    "ceiling": lambda x: x * tf.math.ceil(random.uniform(tf.shape(x)) - 0.1),
    "whole division": lambda x: x * ((random.uniform(tf.shape(x)) + 0.9) // 1),
    "whole numbers": lambda x: x * kept(tf.cast(random.uniform(tf.shape(x)) + 0.9, tf.int32)),
    "truth values": lambda x: (
        x * kept(tf.cast(random.uniform(tf.shape(x), 0, 10, tf.int32), tf.bool))
    ),
    "reshaped": lambda x: (
        x * kept(tf.tile(tf.transpose(random.uniform((6, 4)))[:, :, None], (1, 1, 8)) < 0.9)
    ),
    "put together": lambda x: x * kept(tf.concat(2 * [random.uniform((4, 6, 4))], 2) < 0.9),
    "one of a stack": lambda x: x * kept(tf.stack(2 * [random.uniform((4, 6, 8))])[0] < 0.9),
    "logarithm": lambda x: x * kept(tf.math.log(random.uniform(tf.shape(x))) > -3.0),
    "absolute value": lambda x: x * kept(tf.abs(random.normal(tf.shape(x))) > 0.1),
    "rounded off": lambda x: x * tf.round(tf.sigmoid(random.normal(tf.shape(x)))),
    "truncated normal": lambda x: x * kept(random.truncated_normal(tf.shape(x)) > -1.0),
    "gamma": lambda x: x * kept(random.stateless_gamma(tf.shape(x), SEED, 1.0) > 0.1),
    "an order": lambda x: x * kept(tf.argsort(random.uniform(tf.shape(x))) < 6),
    "the largest": lambda x: (
        x * (lambda u: kept(u >= tf.math.top_k(u, 6)[0][..., -1:]))(random.uniform(tf.shape(x)))
    ),
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
    "a time": lambda x: x + tf.floor(random.uniform((4, 1, 1), maxval=99)),
    "a whole time": lambda x: x + kept(tf.cast(random.uniform((4, 1, 1)) * 99, tf.int32)),
    "clipped noise": lambda x: x + tf.clip_by_value(random.normal(tf.shape(x)), -1.0, 1.0),
    "noise of one size": lambda x: x + (lambda n: n / tf.norm(n))(random.normal(tf.shape(x))),
    "a sign after an order": lambda x: kept(random.shuffle(x) > 0),
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
