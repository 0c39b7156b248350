"""The built-in adapters, and how to find anyone's by name."""

from __future__ import annotations

import importlib
from typing import Any, cast

from quantal.checks import wrong_value
from quantal.conformance.adapter import Adapter

__all__ = ["BUILT_IN", "load"]

BUILT_IN = {
    "numpy": "quantal.conformance.adapters.numpy:native",
    "numpy-key": "quantal.conformance.adapters.numpy:portable",
    "reference": "quantal.conformance.adapters.reference:adapter",
}
"""Where each built-in adapter is; its module is imported when it is asked for."""


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
    module, colon, attribute = BUILT_IN.get(spec, spec).partition(":")
    if not colon:
        expected = f"a built-in adapter ({', '.join(BUILT_IN)}) or package.module:name"
        raise wrong_value("adapter", expected, spec)
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    if isinstance(found, type) or not hasattr(found, "apply"):
        found = found()
    return cast("Adapter", found)
