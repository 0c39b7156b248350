"""Quantal Synaptic Dilution: dropout whose units draw their own retain probability.

``Dilution`` holds the parameters and their exact law, ``dilute`` applies it to an array, ``key``
makes a random key that means the same in every framework. The layers are in ``quantal.torch``,
``quantal.keras`` and ``quantal.jax``. Importing this package loads NumPy and SciPy only.
"""

from quantal._dispatch import dilute
from quantal.dilution import Dilution
from quantal.keys import key

__version__ = "0.1.0"

__all__ = ["Dilution", "__version__", "dilute", "key"]
