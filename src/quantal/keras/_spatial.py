"""QSD of whole feature maps for Keras, in the place of ``keras.layers.SpatialDropout1D`` to 3D."""

from __future__ import annotations

from typing import Any

import keras

from quantal._arguments import word
from quantal._granularity import Axes
from quantal.dilution import Vary
from quantal.keras._layers import QSD
from quantal.keys import Key

__all__ = ["Spatial", "SpatialQSD1D", "SpatialQSD2D", "SpatialQSD3D"]

_FORMATS = ("channels_first", "channels_last")


class Spatial(QSD):
    """QSD whose coefficients are shared over the axes that are neither batch nor channels."""

    _dims: int

    def __init__(
        self,
        rate: float,
        alpha: float | None = None,
        *,
        data_format: str | None = None,
        seed: int | keras.random.SeedGenerator | Key | None = None,
        vary: Vary = "pq",
        unit_mean: bool = False,
        p_broadcast_dims: Axes = (),
        **kwargs: Any,
    ) -> None:
        if data_format is None:
            data_format = keras.config.image_data_format()
        layout = word("data_format", data_format, _FORMATS)
        super().__init__(
            rate,
            alpha,
            seed=seed,
            vary=vary,
            unit_mean=unit_mean,
            broadcast_dims=self._spatial_axes(layout),
            p_broadcast_dims=p_broadcast_dims,
            **kwargs,
        )
        self.data_format = layout
        self.input_spec = keras.layers.InputSpec(ndim=self._dims + 2)

    @classmethod
    def _spatial_axes(cls, layout: str) -> tuple[int, ...]:
        first = 2 if layout == "channels_first" else 1
        return tuple(range(first, first + cls._dims))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["noise_shape"], config["broadcast_dims"]
        return {**config, "data_format": self.data_format}


@keras.saving.register_keras_serializable(package="quantal")
class SpatialQSD1D(Spatial, keras.layers.SpatialDropout1D):
    """QSD of whole feature maps of a (batch, steps, channels) input.

    Parameters
    ----------
    rate, alpha
        As for `QSD`.
    data_format : {"channels_last", "channels_first"}, optional
        Where the channels are; last unless said otherwise, whatever Keras's setting for images.
    seed, vary, unit_mean, p_broadcast_dims, **kwargs
        As for `QSD`.

    Examples
    --------
    >>> import keras
    >>> y = SpatialQSD1D(0.5, alpha=1.0)(keras.ops.ones((2, 4, 3)), training=True)
    >>> bool(keras.ops.all(y == y[:, :1, :]))
    True
    """

    _dims = 1

    def __init__(self, *args: Any, data_format: str = "channels_last", **kwargs: Any) -> None:
        super().__init__(*args, data_format=data_format, **kwargs)


@keras.saving.register_keras_serializable(package="quantal")
class SpatialQSD2D(Spatial, keras.layers.SpatialDropout2D):
    """QSD of whole feature maps of a (batch, rows, columns, channels) input.

    Parameters
    ----------
    rate, alpha
        As for `QSD`.
    data_format : {"channels_last", "channels_first"}, optional
        Where the channels are; by default ``keras.config.image_data_format()``.
    seed, vary, unit_mean, p_broadcast_dims, **kwargs
        As for `QSD`.

    Examples
    --------
    >>> import keras
    >>> y = SpatialQSD2D(0.5, alpha=1.0)(keras.ops.ones((2, 4, 4, 3)), training=True)
    >>> bool(keras.ops.all(y == y[:, :1, :1, :]))
    True
    """

    _dims = 2


@keras.saving.register_keras_serializable(package="quantal")
class SpatialQSD3D(Spatial, keras.layers.SpatialDropout3D):
    """QSD of whole feature maps of an input with three spatial axes; see `SpatialQSD2D`.

    Examples
    --------
    >>> import keras
    >>> layer = SpatialQSD3D(0.5, alpha=1.0, data_format="channels_first")
    >>> y = layer(keras.ops.ones((2, 3, 4, 4, 4)), training=True)
    >>> bool(keras.ops.all(y == y[:, :, :1, :1, :1]))
    True
    """

    _dims = 3
