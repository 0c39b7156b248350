"""The digits that scikit-learn brings along: nothing to download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.data.sets import Data, Split

__all__ = ["load"]

_TEST = 360  # one fifth


def load(folder: Path | None, seed: int) -> Data:
    """Read them; the split is redrawn for each seed, as with the reviews."""
    from sklearn.datasets import load_digits

    images, classes = load_digits(return_X_y=True)
    order = np.random.default_rng([seed, 2]).permutation(len(images))
    x = (images[order] / 16).astype(np.float32).reshape(-1, 8, 8, 1)
    y = classes[order].astype(np.int32)
    return Data(Split(x[_TEST:], y[_TEST:]), Split(x[:_TEST], y[:_TEST]))
