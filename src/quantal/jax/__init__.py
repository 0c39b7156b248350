"""QSD for JAX: `dilute` for any library, and ``nnx``, ``linen``, ``equinox`` and ``haiku``.

These load when they are first used: importing this module loads none of those libraries.
"""

from typing import TYPE_CHECKING

from quantal._errors import require
from quantal._lazy import submodules

require("jax", "jax")

from quantal.jax._coefficients import coefficients  # noqa: E402
from quantal.jax._functional import dilute  # noqa: E402
from quantal.jax._law import Law, law  # noqa: E402

__all__ = ["Law", "coefficients", "dilute", "law"]

if TYPE_CHECKING:
    from quantal.jax import equinox as equinox
    from quantal.jax import haiku as haiku
    from quantal.jax import linen as linen
    from quantal.jax import nnx as nnx

_NEEDS = {"equinox": "equinox", "haiku": "haiku", "linen": "flax", "nnx": "flax"}
__getattr__, __dir__ = submodules(__name__, _NEEDS)
