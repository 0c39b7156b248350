"""The QSD layer for Keras, which follows ``keras.layers.Dropout``."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import keras

from quantal._arguments import axis_numbers, flag
from quantal._errors import FLOATING, wrong_type, wrong_value
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution, Vary
from quantal.keras._backend import backend
from quantal.keras._draw import RandomSource, SharedAxes
from quantal.keras._private_api import build_now
from quantal.keys import Key

__all__ = ["QSD", "alpha_from_json", "alpha_to_json"]

Shape = tuple[int | None, ...]

_SEED = "an integer, a keras.random.SeedGenerator, a quantal.key or None"
_NOISE_SHAPE = "a tuple of positive integers or None"


@keras.saving.register_keras_serializable(package="quantal")
class QSD(keras.layers.Dropout):
    """Multiply units by random coefficients of Quantal Synaptic Dilution during training.

    It takes the place of ``keras.layers.Dropout``, and is one for ``isinstance``: nothing happens
    at test time, and with ``alpha=inf`` it is dropout.

    Parameters
    ----------
    rate : float
        The probability in [0, 1] that a unit is dropped.
    alpha : float
        The homogeneity, above 0: the smaller, the more the units differ.
    noise_shape : tuple of int or None, optional
        The shape of the coefficients, as for Dropout: 1 for an axis along which they are shared,
        None for the size of the input. The same as ``broadcast_dims``; give one of them.
    seed : int, keras.random.SeedGenerator or quantal.Key, optional
        With a `quantal.key`, the n-th call draws from ``key.fold_in(n)``, n counted from 0: the
        coefficients are then the same on every backend.
    vary, unit_mean
        As in `quantal.Dilution`.
    broadcast_dims : int or tuple of int
        Axes, of the whole batch, along which one coefficient is shared.
    p_broadcast_dims : int or tuple of int
        Axes along which only the retain probability is shared; masks stay independent.
    **kwargs
        ``name``, ``dtype`` and so on, as for every layer.

    Examples
    --------
    >>> import keras, quantal
    >>> layer = QSD(0.5, alpha=1.0, seed=quantal.key(0))
    >>> x = keras.ops.ones((2, 4))
    >>> keras.ops.convert_to_numpy(layer(x, training=True)).round(3)
    array([[0.   , 0.   , 0.   , 0.   ],
           [0.   , 3.211, 2.916, 0.   ]], dtype=float32)
    >>> layer(x) is x
    True
    """

    def __init__(
        self,
        rate: float,
        alpha: float | None = None,
        *,
        noise_shape: Any = None,
        seed: int | keras.random.SeedGenerator | Key | None = None,
        vary: Vary = "pq",
        unit_mean: bool = False,
        broadcast_dims: Axes = (),
        p_broadcast_dims: Axes = (),
        **kwargs: Any,
    ) -> None:
        # Not by the constructor of Dropout, which takes no key and no seed generator.
        keras.layers.Layer.__init__(self, **kwargs)
        dilution = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
        self.noise_shape = noise_shape
        self.broadcast_dims = axis_numbers("broadcast_dims", broadcast_dims)
        if noise_shape is not None and self.broadcast_dims:
            raise wrong_value("noise_shape", "None where broadcast_dims is given", noise_shape)
        self.p_broadcast_dims = axis_numbers("p_broadcast_dims", p_broadcast_dims)
        self.seed = _seed(seed)
        if dilution.rate > 0:
            self.seed_generator = _generator(seed)
        self._begin(dilution)
        self.supports_masking = True
        build_now(self)

    def _begin(self, dilution: Dilution) -> None:
        """Set the law of a new layer, and make its tables."""
        self._dilution = dilution
        shared = self.p_broadcast_dims != ()
        self._tables = backend.make_tables(dilution, shared) if dilution.rate > 0 else None

    def __setattr__(self, name: str, value: Any) -> None:
        # seed is not a property: Keras saves a generator under the name of the attribute it is in.
        if name == "seed" and getattr(self, "built", False):
            self._restart(_seed(value))
        elif name in ("broadcast_dims", "p_broadcast_dims"):
            value = axis_numbers(name, value)
        elif name == "noise_shape":
            value = _noise_shape(value)
        super().__setattr__(name, value)

    def _restart(self, seed: Any) -> None:
        """Go on drawing as a new layer with this seed would."""
        if seed is self.seed or self.rate == 0:
            return
        if any(isinstance(each, keras.random.SeedGenerator) for each in (seed, self.seed)):
            # Other layers may use the old generator, and a layer keeps the one it was made with.
            raise wrong_value("seed", "the seed generator with which the layer was made", seed)
        # Its state, not another generator: compiled functions hold the variable.
        self.seed_generator.state.assign(_generator(seed).state)

    @property
    def dilution(self) -> Dilution:
        """The parameters of the law; they may be changed, at the cost of one table."""
        return self._dilution

    @dilution.setter
    def dilution(self, dilution: Dilution) -> None:
        if not isinstance(dilution, Dilution):
            raise wrong_type("dilution", "a quantal.Dilution", dilution)
        if self.rate == 0 and dilution.rate != 0:
            raise wrong_value("rate", "0, as it was when the layer was made", dilution.rate)
        self._dilution = dilution
        if self._tables is not None:
            self._tables.assign(dilution)

    @property
    def rate(self) -> float:
        """The drop rate; it may be changed, but not from 0, where there is no seed generator."""
        return self._dilution.rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self.dilution = dataclasses.replace(self._dilution, rate=rate)

    @property
    def alpha(self) -> float:
        """The homogeneity; it may be changed."""
        return self._dilution.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self.dilution = dataclasses.replace(self._dilution, alpha=alpha)

    def call(self, inputs: Any, training: bool = False) -> Any:
        if not _trains(training) or self.rate == 0:
            return inputs
        source = RandomSource(self.seed, self.seed_generator)
        inputs = _as_tensor(inputs)  # a tensor already, unless call is called directly
        axes = SharedAxes(self._shared_axes(inputs.shape), self.p_broadcast_dims)
        return backend.dilute(inputs, self._dilution, source, axes, self._tables)

    def _shared_axes(self, shape: Any) -> tuple[int, ...]:
        """Return the axes that share a coefficient, by noise_shape or broadcast_dims."""
        if self.noise_shape is None:
            return self.broadcast_dims  # the only case in which the rank may be unknown
        if getattr(shape, "rank", 0) is None:
            raise wrong_value("noise_shape", "None where the rank is unknown", self.noise_shape)
        shape, given = tuple(shape), _noise_shape(self.noise_shape) or ()
        noise = (1,) * (len(shape) - len(given)) + given
        if len(noise) > len(shape) or any(
            n not in (None, 1) and size is not None and n != size
            for n, size in zip(noise, shape, strict=True)
        ):
            raise wrong_value("noise_shape", f"a shape within {shape}", self.noise_shape)
        return tuple(axis for axis, n in enumerate(noise) if n == 1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        # Called when a model is put together: the first chance to refuse axes that do not exist.
        sizes = [size or 0 for size in input_shape]
        coefficient_shapes(sizes, self._shared_axes(input_shape), self.p_broadcast_dims)
        return input_shape

    def get_config(self) -> dict[str, Any]:
        seed = self.seed
        if isinstance(seed, Key):
            seed = {"quantal.key": [seed.word0, seed.word1]}
        elif isinstance(seed, keras.random.SeedGenerator):
            seed = keras.saving.serialize_keras_object(seed)
        return {
            **keras.layers.Layer.get_config(self),
            "rate": self.rate,
            "alpha": alpha_to_json(self.alpha),
            "noise_shape": self.noise_shape,
            "seed": seed,
            "vary": self.dilution.vary,
            "unit_mean": self.dilution.unit_mean,
            "broadcast_dims": self.broadcast_dims,
            "p_broadcast_dims": self.p_broadcast_dims,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> QSD:
        seed = config.get("seed")
        if isinstance(seed, dict):
            words = seed.get("quantal.key")
            seed = Key(*words) if words else keras.saving.deserialize_keras_object(seed)
        alpha = alpha_from_json(config.get("alpha"))
        return super().from_config({**config, "seed": seed, "alpha": alpha})


def alpha_to_json(alpha: float) -> float | str:
    """Return alpha as it stands in configurations: JSON has no infinity."""
    return "inf" if math.isinf(alpha) else alpha


def alpha_from_json(alpha: Any) -> Any:
    """Return the alpha of a configuration."""
    return math.inf if alpha == "inf" else alpha


def _trains(training: Any) -> bool:
    """Return whether a layer is called to train; whatever Keras takes for True or False will do."""
    if training is None or isinstance(training, bool):  # nearly always
        return bool(training)
    try:
        if isinstance(training, int) and training in (0, 1):  # as the learning phases of old Keras
            return bool(training)
        if training.shape == () and "bool" in str(training.dtype):  # torch.bool, <dtype: 'bool'>
            return bool(training)
    except Exception:  # no array, or one whose value is known only when a compiled function runs
        pass
    return flag("training", training)


def _as_tensor(inputs: Any) -> Any:
    try:
        return inputs if keras.ops.is_tensor(inputs) else keras.ops.convert_to_tensor(inputs)
    except Exception:  # a TypeError or ValueError, or what somebody's own class raises
        raise wrong_type("x", FLOATING, type(inputs)) from None


def _seed(seed: Any) -> Any:
    if isinstance(seed, bool) or not isinstance(
        seed, int | keras.random.SeedGenerator | Key | None
    ):
        raise wrong_type("seed", _SEED, seed)
    return seed


def _generator(seed: Any) -> keras.random.SeedGenerator:
    if isinstance(seed, keras.random.SeedGenerator):
        return seed
    try:
        # For a portable key it is only the counter: a state that Keras passes through compiled
        # functions, and that is no weight.
        return keras.random.SeedGenerator(0 if isinstance(seed, Key) else seed)
    except (OverflowError, ValueError, RuntimeError):
        raise wrong_value("seed", "a number within Keras's range for seeds", seed) from None


def _noise_shape(noise_shape: Any) -> Shape | None:
    if noise_shape is None:
        return None
    if isinstance(noise_shape, str):
        raise wrong_value("noise_shape", _NOISE_SHAPE, noise_shape)
    try:
        sizes = tuple(itertools.islice(noise_shape, 65))  # no array has more axes
    except Exception:  # a TypeError, or what somebody's own class raises
        raise wrong_value("noise_shape", _NOISE_SHAPE, noise_shape) from None
    if not all(n is None or (isinstance(n, int) and n > 0) for n in sizes):
        raise wrong_value("noise_shape", _NOISE_SHAPE, noise_shape)
    return sizes
