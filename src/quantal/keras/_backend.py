"""The module that draws for the backend that Keras runs on.

Each of ``_on_tensorflow``, ``_on_jax`` and ``_on_torch`` has these functions:

``dilute(x, law, source, axes, tables)``
    Dilute x by a law, drawing from a source.
``make_tables(law, shared)``
    Make what a layer keeps so that a change of its law reaches functions that are compiled already;
    None on a backend where that is not possible or not needed.
``masks_of_call(call, args)``, ``masks_of_function(run)``
    Return the masks that ``call(*args)`` or ``run()`` draws without QSD. The first is called for
    its masks alone, so it may be traced only; the second may have effects, as a training step has.
``sites_of_modules(layer)``
    List where modules of the backend's own framework, which a layer holds, drop units.
"""

from __future__ import annotations

import importlib
from typing import Any

import keras

from quantal._errors import wrong_value

__all__ = ["backend"]

if keras.backend.backend() not in ("tensorflow", "jax", "torch"):
    raise wrong_value("KERAS_BACKEND", "tensorflow, jax or torch", keras.backend.backend())
backend: Any = importlib.import_module(f"quantal.keras._on_{keras.backend.backend()}")
