"""Small models with dropout of every kind, and an input for each; also for a fresh process."""

import copy
import inspect

import keras
import numpy as np
from keras import layers


def serializable(cls):
    return keras.saving.register_keras_serializable("zoo")(cls)


@serializable
class Block(layers.Layer):
    """A composite layer that makes its own parts, some of them in build."""

    def __init__(self, width, rate=0.2, **kwargs):
        super().__init__(**kwargs)
        self.width, self.rate = width, rate
        self.attention = layers.MultiHeadAttention(2, width // 2, dropout=rate)
        self.norm = layers.BatchNormalization()
        self.parts = [layers.Dense(width, "relu"), layers.Dropout(rate)]

    def call(self, x, training=None):
        x = self.norm(x + self.attention(x, x, training=training), training=training)
        y = x
        for part in self.parts:
            y = part(y)
        return x + y

    def get_config(self):
        return {**super().get_config(), "width": self.width, "rate": self.rate}


@serializable
class LateBlock(layers.Layer):
    """A composite layer whose dropout exists only once it is built."""

    def build(self, input_shape):
        self.dense = layers.Dense(input_shape[-1])
        self.dense.build(input_shape)
        self.drop = layers.Dropout(0.3)

    def call(self, x, training=None):
        return self.drop(self.dense(x), training=training)


@serializable
class Wrapped(layers.Layer):
    """A composite layer without build: what is within is built by the first call."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.late = LateBlock()

    def call(self, x, training=None):
        return self.late(x, training=training)


@serializable
class Net(keras.Model):
    """A subclassed model with a composite layer, a model and a graph within."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.block = Block(4)
        self.head = keras.Sequential([layers.Dropout(0.1), layers.Dense(4), layers.Dropout(0.4)])
        graph = keras.Input((6, 4))
        self.graph = keras.Model(graph, layers.SpatialDropout1D(0.5)(layers.Dense(4)(graph)))

    def call(self, x, training=None):
        return self.head(self.graph(self.block(x, training=training), training=training))


def sequence(*parts):
    return keras.Sequential([keras.Input((6, 4)), *parts])


def functional():
    inputs = keras.Input((6, 4))
    shared = layers.Dropout(0.5, seed=1, name="shared")
    x = shared(layers.Dense(4, "relu")(inputs))
    x = layers.BatchNormalization()(shared(layers.Dense(4)(x)))
    inner = keras.Sequential([keras.Input((6, 4)), layers.Dense(4), layers.Dropout(0.3)])
    return keras.Model(inputs, layers.Dense(2)(inner(inner(x))))


def attention(kind):
    inputs = keras.Input((6, 4))
    return keras.Model(inputs, layers.Dense(2)(kind(dropout=0.25, seed=1)([inputs, inputs])))


def heads(kind):
    inputs = keras.Input((6, 4))
    layer = kind(dropout=0.25, seed=1)
    return keras.Model(inputs, layers.Dense(2)(layer(inputs, inputs)))


def grouped(dropout, seed):
    # Keras 3.5 gives it no seed.
    takes_seed = "seed" in inspect.signature(layers.GroupQueryAttention.__init__).parameters
    options = {"seed": seed} if takes_seed else {}
    return layers.GroupQueryAttention(2, 4, 2, dropout=dropout, **options)


def spatial(layer, shape):
    return keras.Sequential([keras.Input(shape), layers.Dense(3), layer])


def net():
    model = Net()
    model(np.zeros((1, 6, 4), np.float32))
    return model


MODELS = {
    "functional": functional,
    "sequential": lambda: sequence(layers.Dense(4), layers.Dropout(0.5), layers.Dropout(0)),
    "noise shape": lambda: sequence(layers.Dense(4), layers.Dropout(0.5, noise_shape=(None, 1, 4))),
    "subclassed": net,
    "block": lambda: sequence(Block(4), Block(4, 0.5)),
    "late": lambda: sequence(Wrapped(), layers.Dropout(0.5)),
    "spatial 1d": lambda: spatial(layers.SpatialDropout1D(0.4), (6, 4)),
    "spatial 2d": lambda: spatial(layers.SpatialDropout2D(0.4), (6, 5, 4)),
    "spatial 3d": lambda: spatial(
        layers.SpatialDropout3D(0.4, data_format="channels_first"), (3, 6, 5, 4)
    ),
    "time distributed": lambda: sequence(
        layers.Dense(4), layers.TimeDistributed(layers.Dropout(0.5))
    ),
    "lstm": lambda: sequence(layers.LSTM(3, dropout=0.25, seed=1)),
    "lstm, recurrent": lambda: sequence(layers.LSTM(3, dropout=0.25, recurrent_dropout=0.5)),
    "gru": lambda: sequence(layers.GRU(3, dropout=0.25, return_sequences=True)),
    "gru, recurrent": lambda: sequence(layers.GRU(3, recurrent_dropout=0.25)),
    "simple rnn": lambda: sequence(layers.SimpleRNN(3, dropout=0.25, recurrent_dropout=0.5)),
    "stacked cells": lambda: sequence(
        layers.RNN([layers.LSTMCell(3, dropout=0.25), layers.GRUCell(2, recurrent_dropout=0.5)])
    ),
    "bidirectional": lambda: sequence(layers.Bidirectional(layers.LSTM(3, dropout=0.25))),
    "conv lstm": lambda: keras.Sequential(
        [keras.Input((3, 5, 4)), layers.ConvLSTM1D(2, 3, dropout=0.25, recurrent_dropout=0.5)]
    ),
    "attention": lambda: attention(layers.Attention),
    "additive attention": lambda: attention(layers.AdditiveAttention),
    "heads": lambda: heads(lambda **options: layers.MultiHeadAttention(2, 3, **options)),
    "grouped heads": lambda: heads(grouped),
}  # fmt: skip


def keras_can_load(model):
    """Whether Keras loads what it saves of this model: 3.5 does not, if layers are shared so."""
    try:
        copy.deepcopy(model)
    except ValueError as error:
        assert "node index out of bounds" in str(error)  # noqa: PT017 - any other is to be seen
        return False
    return True


def example(model, batch=8):
    """Return an input for a model."""
    shape = getattr(model, "input_shape", None) if model.__class__.__name__ != "Net" else (0, 6, 4)
    return np.random.default_rng(0).normal(size=(batch, *shape[1:])).astype(np.float32)
