"""The dtypes that there are, and how exact a coefficient is in each."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from quantal._errors import wrong_type, wrong_value

__all__ = [
    "coarseness",
    "digits",
    "dtypes_of",
    "is_half",
    "roundoff",
    "smallest",
    "tolerance",
    "wide",
]

USUAL = ("float16", "float32", "float64")
KNOWN = (*USUAL, "bfloat16")
_DIGITS = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}
_SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-126, "float32": 2.0**-126, "float64": 2.0**-126}


def dtypes_of(adapter: Any) -> tuple[np.dtype[Any], ...]:
    """Return the dtypes that an adapter takes, the one that most checks use first."""
    names = getattr(adapter, "dtypes", USUAL)
    expected = f"some of {', '.join(KNOWN)}"
    if not isinstance(names, tuple | list):
        raise wrong_type("adapter.dtypes", expected, names)
    if not names or not all(name in KNOWN for name in names):
        raise wrong_value("adapter.dtypes", expected, names)
    first = next(name for name in ("float32", "float64", "float16", "bfloat16") if name in names)
    return tuple(_dtype(name) for name in dict.fromkeys((first, *names)))


def _dtype(name: str) -> np.dtype[Any]:
    if name == "bfloat16":
        import ml_dtypes  # NumPy has none of its own

        found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return found
    return np.dtype(name)


def is_half(dtype: DTypeLike) -> bool:
    """Return whether a dtype is one of half precision."""
    return _DIGITS.get(np.dtype(dtype).name, 53) < 24


def digits(dtype: DTypeLike) -> int:
    """Return how many binary digits a number has."""
    return _DIGITS[np.dtype(dtype).name]


def roundoff(dtype: DTypeLike) -> float:
    """Return the largest relative error of one rounding."""
    return 2.0 ** -digits(dtype)


def tolerance(dtype: DTypeLike) -> float:
    """Return how far a coefficient may be from its exact value, relatively: a few roundings.

    It may come from a table of float32, so that a float64 is no more exact, or have been rounded
    once more on its way to half precision.
    """
    return max(8 * roundoff("float32"), 2 * roundoff(dtype))


def coarseness(dtype: DTypeLike) -> float:
    """Return how far rounding may move a coefficient, relatively, where that matters."""
    return 2 * roundoff(dtype) if is_half(dtype) else 0.0


def smallest(dtype: DTypeLike) -> float:
    """Return the size below which coefficients may have been raised to it, or flushed to zero."""
    return _SMALLEST[np.dtype(dtype).name]


def wide(x: NDArray[Any]) -> NDArray[Any]:
    """Return an array in a dtype that NumPy computes in: half precision as float32."""
    return x.astype(np.float32) if is_half(x.dtype) else x
