"""Small data sets in the real formats, from which every model can learn."""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for what the tests share
# Not tests, nor examples: collected, they would be imported under a second name.
collect_ignore = ["curves.py", "jax_runs.py", "keras_runs.py", "small_runs.py", "synthetic.py"]

AUTHORS = ("Dennis+Schwartz", "James+Berardinelli", "Scott+Renshaw", "Steve+Rhodes")


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all the sets: mnist/, cifar10/, ptb/ and scale_data.tar.gz."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(20)
    write_mnist(folder / "mnist", rng)
    write_cifar10(folder / "cifar10", rng)
    write_ptb(folder / "ptb", rng)
    write_reviews(folder / "scale_data.tar.gz", rng)
    return folder


def idx(array: np.ndarray) -> bytes:
    """The bytes of an IDX file."""
    sizes = np.array(array.shape, ">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes()


def write_mnist(folder: Path, rng: np.random.Generator) -> None:
    """256 and 64 images: a bright square, at one of ten places, in noise."""
    folder.mkdir()
    for part, count in (("train", 256), ("t10k", 64)):
        classes = rng.integers(0, 10, count)
        images = rng.integers(0, 60, (count, 28, 28))
        for image, number in zip(images, classes, strict=True):
            top, left = 3 + 13 * (number % 2), 2 + 5 * (number // 2)
            image[top : top + 9, left : left + 4] += 180
        packed = gzip.compress(idx(images), mtime=0)
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(packed)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(idx(classes))


def write_cifar10(folder: Path, rng: np.random.Generator) -> None:
    """5 × 64 and 64 images: horizontal stripes of a colour and a width that tell the class."""
    folder.mkdir()
    colours = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
    for name in (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"):
        classes = rng.integers(0, 10, 64)
        stripes = np.sin(np.arange(32) * np.where(classes < 5, 0.4, 1.6)[:, None]) > 0
        images = rng.integers(0, 80, (64, 3, 32, 32))
        images += 170 * colours[classes % 5][:, :, None, None] * stripes[:, None, :, None]
        records = np.concatenate([classes[:, None], images.reshape(64, -1)], axis=1)
        (folder / name).write_bytes(records.astype(np.uint8).tobytes())


def write_ptb(folder: Path, rng: np.random.Generator) -> None:
    """2,800, 760 and 760 words: each is mostly followed by the same one."""
    folder.mkdir()
    words = ["<unk>", "N", *(f"w{number}" for number in range(38))]
    following = rng.permutation(40)
    for part, count in (("train", 2800), ("valid", 760), ("test", 760)):
        lines, line, word = [], [], 0
        for _ in range(count):
            word = following[word] if rng.random() < 0.9 else rng.integers(40)
            line.append(words[word])
            if rng.random() < 0.1:
                lines.append(line)
                line = []
        text = "".join(f" {' '.join(line)} \n" for line in [*lines, line])
        (folder / f"ptb.{part}.txt").write_text(text)


def write_reviews(path: Path, rng: np.random.Generator) -> None:
    """4 × 60 reviews of 10 to 240 words: the share of good words is the rating."""
    with tarfile.open(path, "w:gz") as tar:
        for author in AUTHORS:
            ratings = rng.integers(1, 10, 60) / 10
            texts = [review(rating, rng) for rating in ratings]
            contents = {
                f"subj.{author}": "".join(f"{text} \n" for text in texts),
                f"rating.{author}": "".join(f"{rating:g}\n" for rating in ratings),
                f"label.3class.{author}": "0\n" * 60,
            }
            for name, content in contents.items():
                member = tarfile.TarInfo(f"scaledata/{author}/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content.encode()))


def review(rating: float, rng: np.random.Generator) -> str:
    telling = np.where(rng.random(240) < rating, "good", "bad")
    neutral = rng.choice([f"w{number}" for number in range(50)], 240)
    words = np.where(rng.random(240) < 0.5, telling, neutral)
    return " ".join(words[: rng.integers(10, 241)])
