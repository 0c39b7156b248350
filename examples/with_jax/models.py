"""The models as Flax NNX modules.

All are called alike: inputs, the state of recurrent layers (``carry``, empty without any) and a key
for each site; they return outputs and the next state. The names of their parts are those of
`initial`: item 0 of ``dense`` is called dense1 there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import jax
from flax import nnx
from jax import numpy as jnp

from examples.experiments import Experiment
from examples.settings import Settings
from quantal.jax.nnx import QSD

__all__ = ["Model", "build"]

Sites = Sequence[nnx.Dropout]
Keys = Sequence[jax.Array | None]


class Model(nnx.Module):
    """A network; most have no state to carry from one batch to the next."""

    def probe(self, x: jax.Array) -> jax.Array:
        """Pass on what is measured beside the sites."""
        return x

    def start(self, batch: int) -> Any:
        """Return the state before the first batch."""
        return ()


class MLP(Model):
    """Dense layers with ReLU."""

    def __init__(self, sizes: dict, sites: Sites, **options: Any) -> None:
        widths = (sizes["inputs"], *sizes["hidden"], sizes["classes"])
        self.dense = nnx.List([nnx.Linear(*ends, **options) for ends in pairwise(widths)])
        self.sites = nnx.List(sites)

    def __call__(self, x: jax.Array, carry: Any, keys: Keys) -> tuple[jax.Array, Any]:
        """Return the logits."""
        x = x.reshape(len(x), -1)
        *hidden, last = self.dense
        for dense, site, key in zip(hidden, self.sites, keys, strict=True):
            x = site(nnx.relu(dense(x)), rngs=key)
        return last(x), carry


class LeNet5(Model):
    """Two convolutions with average pooling, then dense layers."""

    def __init__(self, sizes: dict, sites: Sites, **options: Any) -> None:
        kernel = 2 * (sizes["kernel"],)
        first, second = sizes["maps"]
        self.conv = nnx.List(
            [
                nnx.Conv(1, first, kernel, padding=2, **options),
                nnx.Conv(first, second, kernel, padding=0, **options),
            ]
        )
        side = (28 // 2 - kernel[0] + 1) // 2
        widths = (side * side * second, *sizes["dense"], sizes["classes"])
        self.dense = nnx.List([nnx.Linear(*ends, **options) for ends in pairwise(widths)])
        self.sites = nnx.List(sites)

    def __call__(self, x: jax.Array, carry: Any, keys: Keys) -> tuple[jax.Array, Any]:
        """Return the logits."""
        *hidden, last = self.dense
        for layer, site, key in zip([*self.conv, *hidden], self.sites, keys, strict=True):
            convolves = isinstance(layer, nnx.Conv)
            x = x if convolves else x.reshape(len(x), -1)
            x = site(nnx.relu(layer(x)), rngs=key)
            x = nnx.avg_pool(x, (2, 2), strides=(2, 2)) if convolves else x
        return last(x), carry


class Block(nnx.Module):
    """A residual block: normalise, ReLU, convolve, twice; the site before the last convolution."""

    def __init__(self, inputs: int, width: int, stride: int, **options: Any) -> None:
        # Padded by 1 on each side: "SAME" would pad one side only where the stride is 2.
        three: dict[str, Any] = {"kernel_size": (3, 3), "padding": 1, "use_bias": False} | options
        one = three | {"kernel_size": (1, 1), "padding": 0, "strides": stride}
        self.norm1 = _norm(inputs, **options)
        self.conv1 = nnx.Conv(inputs, width, strides=stride, **three)
        self.norm2 = _norm(width, **options)
        self.conv2 = nnx.Conv(width, width, **three)
        self.shortcut = nnx.data(None if inputs == width else nnx.Conv(inputs, width, **one))

    def __call__(self, x: jax.Array, site: nnx.Dropout, key: jax.Array | None) -> jax.Array:
        """Return the sum of the residual and the shortcut."""
        active = nnx.relu(self.norm1(x))
        residual = nnx.relu(self.norm2(self.conv1(active)))
        residual = self.conv2(site(residual, rngs=key))
        return residual + (x if self.shortcut is None else self.shortcut(active))


class Group(nnx.Module):
    """Blocks of one width; the first takes the stride."""

    def __init__(self, blocks: int, inputs: int, width: int, stride: int, **options: Any) -> None:
        first = Block(inputs, width, stride, **options)
        others = [Block(width, width, 1, **options) for _ in range(blocks - 1)]
        self.block = nnx.List([first, *others])


class WideResNet(Model):
    """Three groups of residual blocks."""

    def __init__(self, sizes: dict, sites: Sites, **options: Any) -> None:
        widths = (sizes["stem"], *sizes["widths"])
        self.stem = nnx.Conv(3, widths[0], (3, 3), padding=1, use_bias=False, **options)
        self.group = nnx.List(
            [
                Group(sizes["blocks"], *ends, stride, **options)
                for ends, stride in zip(pairwise(widths), (1, 2, 2), strict=True)
            ]
        )
        self.norm = _norm(widths[-1], **options)
        self.dense = nnx.Linear(widths[-1], sizes["classes"], **options)
        self.sites = nnx.List(sites)

    def __call__(self, x: jax.Array, carry: Any, keys: Keys) -> tuple[jax.Array, Any]:
        """Return the logits."""
        x = self.stem(x)
        blocks = [block for group in self.group for block in group.block]
        for block, site, key in zip(blocks, self.sites, keys, strict=True):
            x = block(x, site, key)
        x = self.probe(nnx.relu(self.norm(x)))
        return self.dense(x.mean((1, 2))), carry


def _norm(channels: int, **options: Any) -> nnx.BatchNorm:
    return nnx.BatchNorm(channels, momentum=0.9, epsilon=1e-5, **options)


class GRUCell(nnx.GRUCell):
    """With a bias in the recurrence too, as PyTorch and Keras have it."""

    def __init__(self, inputs: int, units: int, **options: Any) -> None:
        super().__init__(inputs, units, **options)
        self.dense_h = nnx.Linear(units, 3 * units, **options)


def _recurrent(cell: str, inputs: int, units: int, **options: Any) -> nnx.RNN:
    kind = {"lstm": nnx.OptimizedLSTMCell, "gru": GRUCell}[cell]
    return nnx.RNN(kind(inputs, units, **options), return_carry=True, rngs=False)


class Language(Model):
    """A word at a time: embedding, LSTM layers, the next word."""

    def __init__(self, sizes: dict, sites: Sites, **options: Any) -> None:
        vocabulary, units = sizes["vocabulary"], sizes["units"]
        self.embedding = nnx.Embed(vocabulary, units, **options)
        layers = range(sizes["layers"])
        self.rnn = nnx.List([_recurrent("lstm", units, units, **options) for _ in layers])
        self.dense = nnx.Linear(units, vocabulary, **options)
        self.sites = nnx.List(sites)
        self.state = (units, options["param_dtype"])

    def start(self, batch: int) -> Any:
        """Return the cells' memory and output, for each layer."""
        units, dtype = self.state
        # Each an array of its own: a step takes over the memory of all of them.
        return [tuple(jnp.zeros((batch, units), dtype) for _ in "ch") for _ in self.rnn]

    def __call__(self, x: jax.Array, carry: Any, keys: Keys) -> tuple[jax.Array, Any]:
        """Return the logits of the word after each."""
        (first, *others), (first_key, *other_keys) = self.sites, keys
        x = first(self.embedding(x), rngs=first_key)
        after = []
        for rnn, before, site, key in zip(self.rnn, carry, others, other_keys, strict=True):
            state, x = rnn(x, initial_carry=before)
            x = site(x, rngs=key)
            after.append(state)
        return self.dense(x), after


class Reviews(Model):
    """A segment of a review to its rating: embedding, recurrent layer, its last output."""

    def __init__(self, sizes: dict, sites: Sites, **options: Any) -> None:
        inputs, units = sizes["embedding"], sizes["units"]
        self.embedding = nnx.Embed(sizes["vocabulary"], inputs, **options)
        self.rnn = _recurrent(sizes["cell"], inputs, units, **options)
        self.dense = nnx.Linear(units, 1, **options)
        self.sites = nnx.List(sites)
        self.state = (sizes["cell"], units, options["param_dtype"])

    def __call__(self, x: jax.Array, carry: Any, keys: Keys) -> tuple[jax.Array, Any]:
        """Return the standardised ratings."""
        cell, units, dtype = self.state
        zeros = jnp.zeros((len(x), units), dtype)
        (*before, last), (*before_keys, last_key) = self.sites, keys
        x = self.embedding(x)
        for site, key in zip(before, before_keys, strict=True):
            x = site(x, rngs=key)
        _, x = self.rnn(x, initial_carry=(zeros, zeros) if cell == "lstm" else zeros)
        x = last(x[:, -1], rngs=last_key)
        return self.dense(x)[:, 0], carry


_MODELS = {
    "mlp": MLP,
    "lenet5": LeNet5,
    "wrn": WideResNet,
    "language": Language,
    "reviews": Reviews,
}


def build(experiment: Experiment, settings: Settings) -> Model:
    """Return the model of an experiment without values, only shapes: `weights.load` fills it."""
    products = jnp.dtype(settings.precision)
    kept = jnp.float64 if settings.precision == "float64" else jnp.float32

    def make() -> Model:
        options = {"dtype": products, "param_dtype": kept, "rngs": nnx.Rngs(0)}
        sites = [_site(settings, name) for name in experiment.sites]
        return _MODELS[experiment.model](experiment.sizes, sites, **options)

    model: Model = nnx.eval_shape(make)
    return model


def _site(settings: Settings, name: str) -> nnx.Dropout:
    shared = (-1,) if name == "words" else ()
    law = settings.dilution
    if law is None:
        return nnx.Dropout(0.0)
    if settings.layer == "dropout" and settings.stream == "native":
        return nnx.Dropout(law.rate, broadcast_dims=shared)
    return QSD(
        law.rate,
        law.alpha,
        vary=law.vary,
        unit_mean=law.unit_mean,
        broadcast_dims=shared,
        p_broadcast_dims=settings.p_broadcast_dims,
    )
