"""QSD for Haiku: `dropout` with an alpha, and what brings it into an existing model."""

from quantal._errors import require

require("haiku", "haiku")

from quantal.jax.haiku._convert import convert, revert, sites  # noqa: E402
from quantal.jax.haiku._functional import dropout  # noqa: E402
from quantal.jax.haiku._monte_carlo import masks_on, predict_mc  # noqa: E402

__all__ = ["convert", "dropout", "masks_on", "predict_mc", "revert", "sites"]
