"""QSD for JAX: `dilute` for any library; the layers are in ``nnx``, ``linen`` and ``equinox``.

Importing this module loads neither Flax nor Equinox.
"""

from quantal._errors import require

require("jax", "jax")

from quantal.jax._coefficients import coefficients  # noqa: E402
from quantal.jax._functional import dilute  # noqa: E402

__all__ = ["coefficients", "dilute"]
