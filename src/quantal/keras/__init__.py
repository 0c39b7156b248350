"""QSD for Keras 3, on its TensorFlow, JAX and torch backends: layers in place of dropout's.

Importing this module registers the layers, so that saved models that contain them can be loaded.
"""

from quantal.checks import require

require("keras", "keras")

from quantal.keras.layers import QSD  # noqa: E402 - only once Keras is known to be there
from quantal.keras.spatial import SpatialQSD1D, SpatialQSD2D, SpatialQSD3D  # noqa: E402

__all__ = ["QSD", "SpatialQSD1D", "SpatialQSD2D", "SpatialQSD3D"]
