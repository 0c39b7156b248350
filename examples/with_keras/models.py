"""The models, built from an experiment's sizes with the layer under test at its sites."""

from __future__ import annotations

from typing import Any

import keras
from keras import layers, ops

from examples.run import Run
from quantal.keras import QSD

__all__ = ["Carried", "Model", "build", "measured", "reset_state", "sites"]


class Model(keras.Model):
    """A functional model that also tells the cost of the latest step, beside the epoch's mean."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.latest = keras.metrics.Mean(name="latest")

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        cost = super().compute_loss(*args, **kwargs)
        self.latest.reset_state()
        self.latest.update_state(cost)
        return cost


class Carried(layers.Layer):
    """An LSTM that goes on from where it ended the batch before.

    As ``stateful=True``, which in Keras 3.15 does so on TensorFlow alone: on JAX ``fit`` does not
    carry that state, and on torch its update breaks the backward pass.
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        # Zeros until the weights are loaded: orthogonal matrices of this size take seconds.
        self.lstm = layers.LSTM(
            units, recurrent_initializer="zeros", return_sequences=True, return_state=True
        )

    def build(self, input_shape: tuple[int, ...]) -> None:  # noqa: D102
        self.lstm.build(input_shape)
        shape = (input_shape[0], self.units)
        self.state = [
            self.add_weight(name=name, shape=shape, initializer="zeros", trainable=False)
            for name in ("output", "cell")
        ]

    def call(self, inputs: Any, training: bool = False) -> Any:  # noqa: D102
        # TensorFlow does not know that a batch from a generator is as large as the state.
        places, (_, length, features) = self.state[0].shape[0], inputs.shape
        inputs = ops.reshape(inputs, (places, length or -1, features))
        # Copies: torch overwrites the variables before the backward pass has read them.
        start = [ops.cast(ops.copy(variable.value), self.compute_dtype) for variable in self.state]
        outputs, *end = self.lstm(inputs, initial_state=start, training=training)
        for variable, value in zip(self.state, end, strict=True):
            variable.assign(ops.cast(ops.stop_gradient(value), variable.dtype))
        return outputs

    def reset_state(self) -> None:
        """Start from zero."""
        for variable in self.state:
            variable.assign(ops.zeros_like(variable.value))


class Sites:
    """Puts the layer under test at one site after another."""

    def __init__(self, run: Run) -> None:
        self.run, self.count = run, 0

    def __call__(self, x: Any) -> Any:
        self.count += 1
        return self._layer(self.run.experiment.sites[self.count - 1], f"site{self.count}")(x)

    def _layer(self, place: str, name: str) -> layers.Layer:
        settings, law = self.run.settings, self.run.settings.dilution
        if law is None:
            return layers.Identity(name=name)
        noise_shape = (None, None, 1) if place == "words" else None
        # Where the seeds are numbers, every epoch sets its own.
        seed = self.run.keys[self.count - 1] if settings.stream == "portable" else 0
        if settings.layer == "dropout" and seed == 0:
            return layers.Dropout(law.rate, noise_shape=noise_shape, seed=seed, name=name)
        return QSD(
            law.rate,
            law.alpha,
            vary=law.vary,
            unit_mean=law.unit_mean,
            noise_shape=noise_shape,
            p_broadcast_dims=settings.p_broadcast_dims,
            seed=seed,
            name=name,
        )


def sites(model: keras.Model) -> list[layers.Layer]:
    """Return the layers at the sites, in the order of the pass."""
    return [layer for layer in model.layers if layer.name.startswith("site")]


def measured(model: keras.Model) -> list[layers.Layer]:
    """Return the layers whose outputs are measured: the sites, and others that the model marks."""
    return [*sites(model), *(layer for layer in model.layers if layer.name == "probe")]


def reset_state(model: keras.Model) -> None:
    """Start the recurrent layers that carry their state from zero."""
    for layer in model.layers:
        if isinstance(layer, Carried):
            layer.reset_state()


def build(run: Run, places: int | None = None) -> Model:
    """Build the model of a run; its layers are named as in `examples.initial`, / turned to _.

    A language model reads windows of a text in ``places`` at once, None for those of training.
    """
    experiment = run.experiment
    if experiment.model == "language":
        length = None if places else experiment.sizes["steps"]
        inputs = keras.Input(batch_shape=(places or experiment.batch, length), dtype="int32")
    else:
        x = run.data.train.x
        inputs = keras.Input(x.shape[1:], dtype=str(x.dtype))
    return Model(inputs, _MODELS[experiment.model](inputs, experiment.sizes, Sites(run)))


def _mlp(x: Any, sizes: dict[str, Any], site: Sites) -> Any:
    x = layers.Flatten()(x)
    for number, width in enumerate(sizes["hidden"], 1):
        x = site(layers.Dense(width, activation="relu", name=f"dense{number}")(x))
    return layers.Dense(sizes["classes"], name=f"dense{len(sizes['hidden']) + 1}")(x)


def _lenet5(x: Any, sizes: dict[str, Any], site: Sites) -> Any:
    for number, maps in enumerate(sizes["maps"], 1):
        padding = "same" if number == 1 else "valid"
        convolution = layers.Conv2D(
            maps, sizes["kernel"], padding=padding, activation="relu", name=f"conv{number}"
        )
        x = layers.AveragePooling2D(2)(site(convolution(x)))
    return _mlp(x, {"hidden": sizes["dense"], "classes": sizes["classes"]}, site)


def _wrn(x: Any, sizes: dict[str, Any], site: Sites) -> Any:
    x = _convolution(x, sizes["stem"], 3, 1, "stem")
    for group, width in enumerate(sizes["widths"], 1):
        for block in range(1, sizes["blocks"] + 1):
            stride = 2 if group > 1 and block == 1 else 1
            x = _block(x, width, stride, f"group{group}_block{block}", site)
    x = layers.GlobalAveragePooling2D()(_normed(x, "norm", relu="probe"))
    return layers.Dense(sizes["classes"], name="dense")(x)


def _block(x: Any, width: int, stride: int, name: str, site: Sites) -> Any:
    active = _normed(x, f"{name}_norm1")
    if x.shape[-1] != width:
        x = _convolution(active, width, 1, stride, f"{name}_shortcut")
    active = _normed(_convolution(active, width, 3, stride, f"{name}_conv1"), f"{name}_norm2")
    return layers.Add()([x, _convolution(site(active), width, 3, 1, f"{name}_conv2")])


def _convolution(x: Any, maps: int, size: int, stride: int, name: str) -> Any:
    if size > 1:  # not padding="same", which with a stride of 2 pads at one end only
        x = layers.ZeroPadding2D(size // 2)(x)
    return layers.Conv2D(maps, size, strides=stride, use_bias=False, name=name)(x)


def _normed(x: Any, name: str, relu: str | None = None) -> Any:
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)
    return layers.ReLU(name=relu)(x)


def _language(x: Any, sizes: dict[str, Any], site: Sites) -> Any:
    x = site(layers.Embedding(sizes["vocabulary"], sizes["units"], name="embedding")(x))
    for number in range(1, sizes["layers"] + 1):
        x = site(Carried(sizes["units"], name=f"rnn{number}")(x))
    return layers.Dense(sizes["vocabulary"], name="dense")(x)


def _reviews(x: Any, sizes: dict[str, Any], site: Sites) -> Any:
    x = layers.Embedding(sizes["vocabulary"], sizes["embedding"], name="embedding")(x)
    for _ in site.run.experiment.sites[:-1]:
        x = site(x)
    cell = {"lstm": layers.LSTM, "gru": layers.GRU}[sizes["cell"]]
    x = site(cell(sizes["units"], name="rnn")(x))
    return layers.Dense(1, name="dense")(x)


_MODELS = {
    "mlp": _mlp,
    "lenet5": _lenet5,
    "wrn": _wrn,
    "language": _language,
    "reviews": _reviews,
}
