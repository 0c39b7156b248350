"""QSD for Flax NNX: the layer, and what brings it into an existing model."""

from quantal._errors import require

require("flax", "flax")

from quantal.jax.nnx._convert import convert, revert, sites  # noqa: E402
from quantal.jax.nnx._layer import QSD  # noqa: E402
from quantal.jax.nnx._monte_carlo import masks_on, predict_mc  # noqa: E402

__all__ = ["QSD", "convert", "masks_on", "predict_mc", "revert", "sites"]
