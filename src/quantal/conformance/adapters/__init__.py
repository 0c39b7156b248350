"""The built-in adapters, and how to find anyone's by name."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, cast

from quantal._errors import wrong_value
from quantal.conformance._adapter import Adapter

__all__ = ["BUILT_IN", "installed", "load"]

BUILT_IN = {
    "numpy": ("quantal.conformance.adapters.numpy:native", ()),
    "numpy-key": ("quantal.conformance.adapters.numpy:portable", ()),
    "reference": ("quantal.conformance.adapters.reference:adapter", ()),
    "torch": ("quantal.conformance.adapters.torch:native", ("torch",)),
    "torch-generator": ("quantal.conformance.adapters.torch:generator", ("torch",)),
    "torch-key": ("quantal.conformance.adapters.torch:portable", ("torch",)),
    "tensorflow": ("quantal.conformance.adapters.tensorflow:native", ("tensorflow",)),
    "tensorflow-key": ("quantal.conformance.adapters.tensorflow:portable", ("tensorflow",)),
    "keras": ("quantal.conformance.adapters.keras:on_configured", ("keras",)),
    "keras-tensorflow": (
        "quantal.conformance.adapters.keras:on_tensorflow",
        ("keras", "tensorflow"),
    ),
    "keras-jax": ("quantal.conformance.adapters.keras:on_jax", ("keras", "jax")),
    "keras-torch": ("quantal.conformance.adapters.keras:on_torch", ("keras", "torch")),
    "jax": ("quantal.conformance.adapters.jax:native", ("jax",)),
    "jax-key": ("quantal.conformance.adapters.jax:portable", ("jax",)),
    "nnx": ("quantal.conformance.adapters.nnx:adapter", ("jax", "flax")),
    "linen": ("quantal.conformance.adapters.linen:adapter", ("jax", "flax")),
    "equinox": ("quantal.conformance.adapters.equinox:adapter", ("jax", "equinox")),
}
"""Where each built-in adapter is and what it needs; it is imported when it is asked for."""


def installed() -> tuple[str, ...]:
    """Return the built-in adapters whose frameworks are installed, each implementation once."""
    return tuple(
        name
        for name, (_, needs) in BUILT_IN.items()
        if name != "keras"  # which is one of those that follow
        and all(importlib.util.find_spec(package) for package in needs)
    )


def load(spec: str) -> Adapter:
    """Return the adapter called ``spec``: a built-in one, or ``package.module:name``.

    The name may be that of an adapter, or of a class or function that makes one.

    Examples
    --------
    >>> load("numpy").name
    'numpy'
    >>> load("quantal.conformance.adapters.reference:adapter").name
    'reference'
    """
    place, _ = BUILT_IN.get(spec, (spec, ()))
    module, colon, attribute = place.partition(":")
    if not colon:
        expected = f"a built-in adapter ({', '.join(BUILT_IN)}) or package.module:name"
        raise wrong_value("adapter", expected, spec)
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    if isinstance(found, type) or not hasattr(found, "apply"):
        found = found()
    return cast("Adapter", found)
