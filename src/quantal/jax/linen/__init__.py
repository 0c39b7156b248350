"""QSD for Flax Linen: the layer, and what brings it into an existing model."""

from quantal._errors import require

require("flax", "flax")

from quantal.jax.linen._convert import convert, intercept, revert, sites  # noqa: E402
from quantal.jax.linen._layer import QSD  # noqa: E402
from quantal.jax.linen._monte_carlo import masks_on, predict_mc  # noqa: E402

__all__ = ["QSD", "convert", "intercept", "masks_on", "predict_mc", "revert", "sites"]
