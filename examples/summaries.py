"""What tables and figures need of the sparse-encoding measurements: a twentieth of them.

Of every array in ``sparse.npz``, ``summary.npz`` keeps quantiles, evenly spaced, for histograms,
and under the same name with ``/spread`` its mean and standard deviation; totals stay as they are.
A folder may hold either file: what is drawn from them is the same.
"""

from __future__ import annotations

from functools import lru_cache
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.files import write_whole
from examples.folder import DamagedError

__all__ = ["load", "reduce", "write"]

_QUANTILES = 256
_FULL, _SMALL = "sparse.npz", "summary.npz"

Arrays = dict[str, NDArray]


def reduce(measured: Arrays) -> Arrays:
    """Return the summary of what `sparse.measure` returns.

    Examples
    --------
    >>> found = reduce({"permuted/1/units": np.arange(1000.0), "permuted/1/totals": np.ones(3)})
    >>> [(name, array.shape) for name, array in found.items()]
    [('permuted/1/units', (256,)), ('permuted/1/units/spread', (2,)), ('permuted/1/totals', (3,))]
    """
    found: Arrays = {}
    # Values of a run that diverged may be infinite.
    with np.errstate(over="ignore", invalid="ignore"):
        for name, array in measured.items():
            if name.endswith("/totals"):
                found[name] = array
            else:
                found[name] = _some(array).astype(np.float16)
                found[f"{name}/spread"] = np.array(
                    [array.mean(dtype=float), array.std(dtype=float)]
                )
    return found


def load(folder: Path) -> Arrays:
    """Return the summary of a run's measurements, nothing if nothing was measured."""
    for name in (_FULL, _SMALL):
        path = folder / name
        if path.exists():
            return _load(path, path.stat().st_mtime_ns)
    return {}


def write(arrays: Arrays, folder: Path) -> None:
    """Write a summary, from which `load` reads it."""
    packed = BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    write_whole(folder / _SMALL, packed.getvalue())


@lru_cache(maxsize=2000)  # figures ask for a run more than once
def _load(path: Path, changed: int) -> Arrays:
    try:
        with path.open("rb") as file, np.load(file) as packed:
            arrays = {name: _numbers(array) for name, array in packed.items()}
        return reduce(arrays) if path.name == _FULL else arrays
    except Exception as error:  # of many kinds: of zipfile, zlib, NumPy, and of odd headers
        raise DamagedError(path, "arrays of numbers", error) from error


def _numbers(array: NDArray) -> NDArray:
    if array.ndim != 1 or array.dtype.kind != "f":
        raise ValueError(f"{array.ndim} axes of {array.dtype}")
    return array


def _some(array: NDArray) -> NDArray:
    """Return the array itself, or as many of its values in their order, evenly spaced."""
    if len(array) <= _QUANTILES:
        return array
    places = (np.arange(_QUANTILES) + 0.5) / _QUANTILES * len(array)
    return np.sort(array)[places.astype(int)]
