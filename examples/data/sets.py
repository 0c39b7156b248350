"""What a data set is, and where each comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from quantal._errors import wrong_value

__all__ = ["Data", "Split", "load"]

Augment = Callable[[NDArray, np.random.Generator], NDArray]


@dataclass(frozen=True)
class Split:
    """Samples and targets.

    Images (n, height, width, channels) float32 and classes int32; word numbers (n, length) int32
    and standardised ratings float32; or a text, (n,) int32, whose targets are its next words: then
    ``y`` is None.
    """

    x: NDArray
    y: NDArray | None = None

    def limited(self, limit: int | None) -> Split:
        """Return the first samples."""
        return Split(self.x[:limit], None if self.y is None else self.y[:limit])


@dataclass(frozen=True)
class Data:
    """A data set.

    ``augment`` changes a batch of training images at random. ``scale`` turns a standardised error
    into the unit of the ratings.
    """

    train: Split
    test: Split
    valid: Split | None = None
    augment: Augment | None = None
    scale: float = 1.0

    @property
    def parts(self) -> dict[str, Split]:
        """What is evaluated, by name."""
        parts = {"valid": self.valid, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None}

    def limited(self, limit: int | None) -> Data:
        """Return a slice of each split."""
        valid = None if self.valid is None else self.valid.limited(limit)
        return replace(
            self, train=self.train.limited(limit), test=self.test.limited(limit), valid=valid
        )


def load(name: str, folder: Path | None = None, *, seed: int = 0) -> Data:
    """Read a data set from a folder, or else from the cache, into which it is downloaded.

    Parameters
    ----------
    name : str
        ``digits``, ``mnist``, ``cifar10``, ``ptb`` or ``reviews``.
    folder : path, optional
        Where the files are, or the folder that has this set's folder in it; it is only read.
    seed : int
        Of the split into training and test data, where the set itself has none.
    """
    from examples.data import cifar10, digits, mnist, ptb, reviews

    loaders = {
        "digits": digits.load,
        "mnist": mnist.load,
        "cifar10": cifar10.load,
        "ptb": ptb.load,
        "reviews": reviews.load,
    }
    if name not in loaders:
        raise wrong_value("name", f"one of {', '.join(loaders)}", name)
    return loaders[name](None if folder is None else Path(folder), seed)
