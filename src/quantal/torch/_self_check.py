"""Whether the fused kernels are used on a device: they are there, and draw what NumPy draws."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from quantal._process_lock import ProcessLock
from quantal.keys import CELLS, key
from quantal.torch import _launch
from quantal.torch._private_api import transforms_active, without_modes

__all__ = ["capturing", "cells_of_seed", "installed", "philox4x32", "usable"]

Words = NDArray[np.uint64]

DEVICES = {"cuda"}  # which is also what torch calls ROCm
_found: dict[torch.device, bool] = {}
_lock = ProcessLock()


@functools.cache
def _triton_is_there() -> bool:
    try:
        return importlib.util.find_spec("triton") is not None
    except ValueError:  # an empty module, which some put there where Triton is missing
        return False


def installed(device: torch.device) -> bool:
    """Return whether there are kernels for a device, and nobody has turned them off."""
    turned_off = os.environ.get("QUANTAL_TRITON") == "0"
    return device.type in DEVICES and not turned_off and _triton_is_there()


def usable(device: torch.device) -> bool:
    """Return whether the kernels are to be used on a device; first of all they are tried there."""
    if device.type not in DEVICES:
        return False
    found = _found.get(device)
    return _try(device) if found is None else found


def _try(device: torch.device) -> bool:
    # While a graph is captured, or within a transform, nothing can be compared.
    if not installed(device) or capturing(device) or transforms_active():
        return False
    with _lock():
        if device not in _found:
            wrong = _difference(device)
            _found[device] = not wrong
            if wrong:
                message = f"QSD on {device} takes separate operations, for its kernels {wrong}"
                warnings.warn(message, RuntimeWarning, stacklevel=2)
    return _found[device]


def capturing(device: torch.device) -> bool:
    """Return whether what runs on a device is captured in a CUDA graph."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return False
    return torch.cuda.is_current_stream_capturing()


def _difference(device: torch.device) -> str:
    """Return what is wrong with the kernels on a device; nothing, if they draw what NumPy draws."""
    rows, threshold, count = np.arange(2 * CELLS, dtype=np.float32).reshape(2, CELLS), 5, 2051
    own = key(2**63 + 1)
    # Coefficients that tell where they stand in the table, one level for each of its rows, and
    # units for tiles that are full and for one that is not.
    expected = {
        "a seed": rows[1, cells_of_seed(2**63 - 1, count)],
        "a key": rows[0, own.indices(count)],
    }
    try:
        with without_modes():
            made = (
                torch.from_numpy(np.roll(rows, CELLS // 2, axis=1).reshape(-1)).to(device),
                torch.tensor(threshold, dtype=torch.int32, device=device),
            )
            x = torch.ones(count, dtype=torch.float32, device=device)
            drawn = {name: torch.empty_like(x) for name in expected}
            seed = torch.tensor([2**63 - 1, threshold - 1], dtype=torch.int64, device=device)
            _launch.multiply_by_seed(x, drawn["a seed"], *made, seed)
            _launch.multiply_by_key(x, drawn["a key"], *made, own.word0, own.word1, threshold)
            for name, y in drawn.items():
                if not np.array_equal(y.cpu().numpy(), expected[name]):
                    return f"draw from {name} what NumPy does not"
            if _launch.rounds_by_hand(device):
                # Products that are rounded, too large, or no numbers.
                kinds = [1.0, -1.0078125, 3e38, math.nan, math.inf, -math.inf, -0.0, 1e-40]
                given = torch.tensor(kinds * count, dtype=torch.bfloat16, device="cpu")[:count]
                rounded = torch.empty_like(given, device=device)
                _launch.multiply_by_seed(given.to(device), rounded, *made, seed)
                wanted = (given * torch.from_numpy(expected["a seed"])).to(given.dtype)
                if not torch.allclose(rounded.cpu(), wanted, rtol=0, atol=0, equal_nan=True):
                    return "round to bfloat16 as CPUs do not"
    except Exception as error:  # whatever is wrong with Triton, its compiler or the device
        return f"fail: {error}"
    return ""


def cells_of_seed(seed: int, count: int) -> NDArray[np.uint16]:
    """Return the cells of the first units of a seed, as `quantal.torch._triton_kernels` has them.

    Examples
    --------
    >>> cells_of_seed(0, 2)
    array([59605, 26151], dtype=uint16)
    """
    lanes = _launch.LANES
    tiles = -(-count // (8 * lanes))
    number, zero = np.arange(lanes * tiles, dtype=np.uint64), np.zeros(lanes * tiles, np.uint64)
    low, high = number & np.uint64(0xFFFFFFFF), number >> np.uint64(32)
    words = philox4x32(seed, (low, high, zero, zero))
    halves = np.stack(words, axis=-1).astype("<u4").view("<u2")
    # Of each lane, four cells in the first half of its tile and four in the second.
    cells = halves.reshape(tiles, lanes, 2, 4).swapaxes(1, 2)
    return cells.reshape(-1)[:count].astype(np.uint16)


def philox4x32(key: int, counter: Sequence[Words]) -> tuple[Words, ...]:
    """Encipher counters of four words each by a key of 64 bits: Philox-4x32 of ten rounds."""
    word, places = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = counter
    for step in range(10):
        key0 = np.uint64((key + step * 0x9E3779B9) & 0xFFFFFFFF)
        key1 = np.uint64(((key >> 32) + step * 0xBB67AE85) & 0xFFFFFFFF)
        product0, product2 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1 = (product2 >> places) ^ c1 ^ key0, product2 & word
        c2, c3 = (product0 >> places) ^ c3 ^ key1, product0 & word
    return c0, c1, c2, c3
