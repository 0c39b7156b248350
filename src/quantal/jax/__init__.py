"""QSD for JAX: `dilute` for any library; the layers are in ``nnx``, ``linen`` and ``equinox``.

Importing this module loads neither Flax nor Equinox.
"""

from quantal.checks import require

require("jax", "jax")

from quantal.jax.drawing import coefficients  # noqa: E402
from quantal.jax.functional import dilute  # noqa: E402

__all__ = ["coefficients", "dilute"]
