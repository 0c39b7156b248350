"""QSD for Keras 3, on its TensorFlow, JAX and torch backends: layers in place of dropout's.

Importing this module registers the layers, so that saved models that contain them can be loaded.
"""

import os

from quantal._errors import require

_BACKENDS = {name: f"keras-{name}" for name in ("tensorflow", "jax", "torch")}
_WANTED = os.environ.get("KERAS_BACKEND", "tensorflow")

require("keras", _BACKENDS.get(_WANTED, "keras-tensorflow"), others=_BACKENDS)

from quantal.keras._convert import convert, revert, sites  # noqa: E402 - once Keras is known
from quantal.keras._layers import QSD  # noqa: E402
from quantal.keras._monte_carlo import masks_on, predict_mc  # noqa: E402
from quantal.keras._spatial import SpatialQSD1D, SpatialQSD2D, SpatialQSD3D  # noqa: E402

__all__ = ["QSD", "SpatialQSD1D", "SpatialQSD2D", "SpatialQSD3D"]
__all__ += ["convert", "masks_on", "predict_mc", "revert", "sites"]
