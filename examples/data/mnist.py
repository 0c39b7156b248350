"""MNIST, from its IDX files."""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.data.files import Download, File, Source, wrong_file
from examples.data.sets import Data, Split

__all__ = ["SOURCE", "load"]

_HOMES = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
# As torchvision checks them.
_MD5 = {
    "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
}
SOURCE = Source(
    title="MNIST",
    folders=("mnist", "MNIST", "MNIST/raw", "raw"),  # the last two are torchvision's
    files=tuple(_MD5),
    downloads=tuple(
        Download(f"{name}.gz", tuple(f"{home}{name}.gz" for home in _HOMES), f"md5:{digest}")
        for name, digest in _MD5.items()
    ),
)


def load(folder: Path | None, seed: int) -> Data:
    """Read it; pixels from 0 to 1. Its own split does not depend on the seed."""
    images, classes, test_images, test_classes = SOURCE.read(folder)
    return Data(_split(images, classes), _split(test_images, test_classes))


def _split(images: File, classes: File) -> Split:
    x, y = _array(images, 3), _array(classes, 1)
    if x.shape[1:] != (28, 28):
        raise wrong_file(images.path, "images of 28 × 28 pixels", _by(x.shape[1:]))
    if len(x) != len(y):
        raise wrong_file(classes.path, f"{len(x)} labels, as many as images", len(y))
    if y.max(initial=0) > 9:
        raise wrong_file(classes.path, "labels from 0 to 9", y.max())
    return Split(x[..., None].astype(np.float32) / 255, y.astype(np.int32))


def _array(file: File, rank: int) -> NDArray[np.uint8]:
    """Read an IDX file of bytes: 0, 0, 8 (bytes), rank; the sizes, big-endian; the bytes."""
    start = 4 + 4 * rank
    if file.content[:4] != bytes([0, 0, 8, rank]) or len(file.content) < start:
        expected = f"an IDX file of bytes in {rank} dimension(s)"
        raise wrong_file(file.path, expected, f"first bytes {file.content[:4].hex() or 'none'}")
    shape = tuple(int(size) for size in np.frombuffer(file.content, ">u4", rank, offset=4))
    if len(file.content) != start + prod(shape):
        raise wrong_file(file.path, f"{_by(shape)} bytes, as it says", len(file.content) - start)
    return np.frombuffer(file.content, np.uint8, offset=start).reshape(shape)


def _by(shape: tuple[int, ...]) -> str:
    return " × ".join(str(size) for size in shape)
