"""Quantal Synaptic Dilution: dropout whose units draw their own retain probability.

``Dilution`` holds the parameters and their exact law, ``dilute`` applies it to an array, ``key``
makes a random `Key` that means the same in every framework. The layers are in ``quantal.torch``,
``quantal.keras`` and ``quantal.jax``, which load when they are first used: importing this package
loads NumPy and SciPy only.
"""

from typing import TYPE_CHECKING

from quantal._dispatch import dilute
from quantal._lazy import submodules
from quantal.dilution import Dilution
from quantal.keys import Key, key

if TYPE_CHECKING:
    from quantal import conformance as conformance
    from quantal import jax as jax
    from quantal import keras as keras
    from quantal import numpy as numpy
    from quantal import reference as reference
    from quantal import sites as sites
    from quantal import table as table
    from quantal import tensorflow as tensorflow
    from quantal import torch as torch

__version__ = "0.1.0"
"""The version of this package."""

__all__ = ["Dilution", "Key", "__version__", "dilute", "key"]

__getattr__, __dir__ = submodules(
    __name__,
    {
        "conformance": "",
        "jax": "jax",
        "keras": "keras",
        "numpy": "",
        "reference": "",
        "sites": "",
        "table": "",
        "tensorflow": "tensorflow",
        "torch": "torch",
    },
)
