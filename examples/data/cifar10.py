"""CIFAR-10, from its binary version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.data.files import Download, File, Source, wrong_file
from examples.data.sets import Data, Split

__all__ = ["SOURCE", "augment", "load", "normalise"]

SOURCE = Source(
    title="CIFAR-10",
    folders=("cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "cifar10-subset"),
    files=(*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"),
    downloads=(
        Download(
            "cifar-10-binary.tar.gz",
            (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                "https://cave.cs.toronto.edu/kriz/cifar-10-binary.tar.gz",
            ),
            "md5:c32a1d4ab5d03f1284b67883e8d87530",  # published beside it
        ),
    ),
)

_SIZE = 32
_RECORD = 1 + 3 * _SIZE * _SIZE  # a label, then the red, the green and the blue pixels
_EDGE = 2
# An image's norm after normalisation: with 3,072 numbers, a standard deviation of 0.992 (cited).
_NORM = 55.0
_LEAST = 1e-8  # an image of one colour has no contrast to divide by


def load(folder: Path | None, seed: int) -> Data:
    """Read it, normalised; its own split does not depend on the seed."""
    *train, test = [_split(file) for file in SOURCE.read(folder)]
    x = np.concatenate([part.x for part in train])
    y = np.concatenate([part.y for part in train if part.y is not None])
    return Data(Split(x, y), test, augment=augment)


def normalise(images: NDArray) -> NDArray[np.float32]:
    """Subtract each image's mean over pixels and colours, and bring its norm to 55."""
    centred = images - images.mean(axis=(1, 2, 3), keepdims=True, dtype=np.float32)
    norm = np.sqrt(np.square(centred).sum(axis=(1, 2, 3), keepdims=True))
    centred *= _NORM / np.where(norm < _LEAST, _NORM, norm)
    return centred.astype(np.float32, copy=False)


def augment(images: NDArray, rng: np.random.Generator) -> NDArray:
    """Flip half of the images, and move each by up to 2 pixels; what comes in is its reflection.

    The reflection repeats the pixels of the edge, as that of the author's own library does.
    """
    count = len(images)
    edges = ((0, 0), (_EDGE, _EDGE), (_EDGE, _EDGE), (0, 0))
    padded = np.pad(images, edges, mode="symmetric")
    top, left = rng.integers(0, 2 * _EDGE + 1, (2, count, 1))
    flipped = rng.random((count, 1)) < 0.5
    pixels = np.arange(_SIZE)
    rows = top + pixels
    columns = left + np.where(flipped, pixels[::-1], pixels)
    return padded[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]


def _split(file: File) -> Split:
    if not file.content or len(file.content) % _RECORD:
        expected = f"records of {_RECORD:,} bytes"
        raise wrong_file(file.path, expected, f"{len(file.content):,} bytes")
    records = np.frombuffer(file.content, np.uint8).reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise wrong_file(file.path, "labels from 0 to 9", records[:, 0].max())
    images = records[:, 1:].reshape(-1, 3, _SIZE, _SIZE).transpose(0, 2, 3, 1)
    return Split(normalise(images), records[:, 0].astype(np.int32))
