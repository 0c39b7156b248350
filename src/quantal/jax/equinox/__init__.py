"""QSD for Equinox: the layer, and what brings it into an existing model."""

from quantal._errors import require

require("equinox", "equinox")

from quantal.jax.equinox._convert import convert, revert, sites  # noqa: E402
from quantal.jax.equinox._layer import QSD  # noqa: E402
from quantal.jax.equinox._monte_carlo import masks_on, predict_mc  # noqa: E402

__all__ = ["QSD", "convert", "masks_on", "predict_mc", "revert", "sites"]
