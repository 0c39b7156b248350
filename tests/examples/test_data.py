"""The data sets, read from files in the real formats, and what is said of bad ones."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from examples.data import Data, cifar10, load, mnist, ptb, reviews
from examples.data.cifar10 import normalise

REAL = ["mnist", "cifar10", "ptb", "reviews"]


@pytest.fixture
def folder(data_folder: Path, tmp_path: Path) -> Path:
    """A copy of the data, to spoil."""
    return Path(shutil.copytree(data_folder, tmp_path / "copy"))


def same(one: Data, two: Data) -> bool:
    return all(
        np.array_equal(getattr(one, part).x, getattr(two, part).x)
        and np.array_equal(getattr(one, part).y, getattr(two, part).y)
        for part in ("train", "test")
    )


# --- where the files are -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mnist", "cifar10", "ptb"])
def test_a_set_is_found_in_its_own_folder_too(name: str, data_folder: Path) -> None:
    assert same(load(name, data_folder), load(name, data_folder / name))


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("mnist", "MNIST/raw"),
        ("cifar10", "cifar10-subset"),
        ("cifar10", "cifar-10-batches-bin"),
        ("ptb", "simple-examples/data"),
    ],
)
def test_folders_may_have_the_names_that_others_give_them(
    name: str, there: str, data_folder: Path, folder: Path
) -> None:
    (folder / there).parent.mkdir(exist_ok=True)
    (folder / name).rename(folder / there)
    assert same(load(name, folder), load(name, data_folder))


@pytest.mark.parametrize("there", ["", "reviews", "scale_data"])
def test_the_reviews_may_be_unpacked(there: str, data_folder: Path, folder: Path) -> None:
    with tarfile.open(folder / "scale_data.tar.gz") as tar:
        tar.extractall(folder / there, filter="data")
    (folder / "scale_data.tar.gz").unlink()
    assert same(load("reviews", folder, seed=2), load("reviews", data_folder, seed=2))


def test_a_path_may_be_a_string(data_folder: Path) -> None:
    assert same(load("mnist", str(data_folder)), load("mnist", data_folder))


@pytest.mark.parametrize("name", REAL)
def test_an_empty_folder_is_one_clear_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing of it is in .* Give as --data a folder"):
        load(name, tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"nowhere is not a folder\. Give as --data a folder"
    ):
        load(name, tmp_path / "nowhere")


def test_the_missing_file_is_named_with_its_address(folder: Path) -> None:
    (folder / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r"^MNIST: not in .*mnist: t10k-labels-idx1-ubyte\. Give as --data .*"
        r"https://ossci-datasets\.s3\.amazonaws\.com/mnist/t10k-labels-idx1-ubyte\.gz$",
    ):
        load("mnist", folder)


def test_a_name_that_is_no_set() -> None:
    with pytest.raises(
        ValueError, match=r"name: expected one of digits, mnist, .* Received: name='x'"
    ):
        load("x")


# --- MNIST ---------------------------------------------------------------------------------------


def test_mnist_is_scaled_to_one(data_folder: Path) -> None:
    data = load("mnist", data_folder)
    assert data.train.x.shape == (256, 28, 28, 1)
    assert data.test.x.shape == (64, 28, 28, 1)
    assert data.train.x.dtype == np.float32
    assert data.train.y.dtype == np.int32
    raw = gzip.decompress((data_folder / "mnist/train-images-idx3-ubyte.gz").read_bytes())
    assert data.train.x[3, 2, 1, 0] == np.float32(raw[16 + 3 * 784 + 2 * 28 + 1]) / 255
    labels = (data_folder / "mnist/train-labels-idx1-ubyte").read_bytes()
    assert data.train.y.tolist() == list(labels[8:])


def change(path: Path, content: bytes) -> str:
    packed = gzip.compress(content) if path.suffix == ".gz" else content
    path.write_bytes(packed)
    return str(path)


@pytest.mark.parametrize(
    ("file", "spoil", "words"),
    [
        ("t10k-labels-idx1-ubyte", lambda b: b[:-1], "64 bytes, as it says. Found: 63"),
        ("t10k-labels-idx1-ubyte", lambda b: b + b"0", "64 bytes, as it says. Found: 65"),
        ("t10k-labels-idx1-ubyte", lambda b: b"", "an IDX file .* Found: first bytes none"),
        ("t10k-labels-idx1-ubyte", lambda b: b[:6], "an IDX file of bytes in 1 dimension"),
        ("t10k-labels-idx1-ubyte", lambda b: b"\0\0\x0d" + b[3:], "first bytes 00000d01"),
        ("t10k-labels-idx1-ubyte", lambda b: b[:-1] + b"\x0a", "labels from 0 to 9. Found: 10"),
        ("t10k-labels-idx1-ubyte", lambda b: b[:7] + b"\x3f" + b[9:], "64 labels, .* Found: 63"),
        ("t10k-images-idx3-ubyte.gz", lambda b: b[:-1], "64 × 28 × 28 bytes, .* Found: 50175"),
        (
            "t10k-images-idx3-ubyte.gz",
            lambda b: b[:11] + b"\x0e" + b[12:15] + b"\x38" + b[16:],
            r"28 × 28 pixels. Found: 14 × 56",
        ),
    ],
)
def test_a_spoilt_idx_file_is_named(file: str, spoil, words: str, folder: Path) -> None:
    path = folder / "mnist" / file
    content = path.read_bytes()
    content = gzip.decompress(content) if path.suffix == ".gz" else content
    name = change(path, spoil(content))
    with pytest.raises(ValueError, match=words) as caught:
        load("mnist", folder)
    assert str(caught.value).startswith(f"{name}: expected ")


@pytest.mark.parametrize("spoil", [lambda b: b[:-20], lambda b: b"no" + b, lambda b: b[:50] * 2])
def test_a_spoilt_gzip_file_is_named(spoil, folder: Path) -> None:
    path = folder / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(ValueError, match=r"idx3-ubyte\.gz: expected a whole gzip file\. Found: "):
        load("mnist", folder)


# --- CIFAR-10 ------------------------------------------------------------------------------------


def test_cifar10_has_its_pixels_in_place(tmp_path: Path) -> None:
    record = np.zeros((2, 3073), np.uint8)
    record[:, 0] = 3, 7
    record[1, 1 + 1024 + 2 * 32 + 5] = 200  # green, row 2, column 5
    for name in (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"):
        (tmp_path / name).write_bytes(record.tobytes())
    data = load("cifar10", tmp_path)
    assert data.train.x.shape == (10, 32, 32, 3)
    assert data.train.x.dtype == np.float32
    assert data.train.y.tolist() == [3, 7] * 5
    assert np.argwhere(data.test.x[1] > 1).tolist() == [[2, 5, 1]]


def test_global_contrast_normalisation() -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (20, 32, 32, 3)).astype(np.uint8)
    images[0] = 17  # no contrast
    images[1] = images[2] // 2  # half the contrast
    done = normalise(images)
    assert done.dtype == np.float32
    assert not done[0].any()
    np.testing.assert_allclose(done[1:].mean(axis=(1, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(np.square(done[1:]).sum(axis=(1, 2, 3))), 55, rtol=1e-5)
    exact = images[3] - images[3].mean()
    np.testing.assert_allclose(done[3], exact * 55 / np.linalg.norm(exact), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(done[1], done[2], atol=0.02)  # but for the rounding


def test_a_spoilt_batch_is_named(folder: Path) -> None:
    path = folder / "cifar10" / "data_batch_3.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    words = r"data_batch_3\.bin: expected records of 3,073 bytes\. Found: 196,671 bytes"
    with pytest.raises(ValueError, match=words):
        load("cifar10", folder)
    path.write_bytes(b"\x0b" + content[1:])
    with pytest.raises(ValueError, match=r"data_batch_3\.bin: expected labels from 0 to 9\. Found"):
        load("cifar10", folder)


# --- Penn Treebank -------------------------------------------------------------------------------


def write_texts(folder: Path, **texts: str) -> Path:
    for part, text in texts.items():
        (folder / f"ptb.{part}.txt").write_text(text)
    return folder


def test_words_are_numbered_by_frequency_and_lines_end(tmp_path: Path) -> None:
    write_texts(tmp_path, train=" b a <unk> b \n a b \n", valid=" a new \n", test=" b \n")
    data = load("ptb", tmp_path)
    # b three times; <eos> and a twice; <unk> once
    assert data.train.x.tolist() == [0, 2, 3, 0, 1, 2, 0, 1]
    assert data.valid.x.tolist() == [2, 3, 1]
    assert data.test.x.tolist() == [0, 1]
    assert data.train.x.dtype == np.int32
    assert data.train.y is None


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"train": ""}, r"ptb\.train\.txt: expected a text\. Found: nothing"),
        ({"test": "a c \n"}, r"ptb\.test\.txt: expected words of the training text, .* Found: c"),
        (
            {"train": " ".join(map(str, range(10_000))) + "\n"},
            r"ptb\.train\.txt: expected at most 10,000 different words\. Found: 10,001",
        ),
    ],
)
def test_a_spoilt_text_is_named(texts: dict[str, str], words: str, tmp_path: Path) -> None:
    write_texts(tmp_path, **({"train": "a b \n", "valid": "a \n", "test": "b \n"} | texts))
    with pytest.raises(ValueError, match=words):
        load("ptb", tmp_path)


def test_bytes_that_are_no_text_are_named(folder: Path) -> None:
    (folder / "ptb" / "ptb.valid.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"ptb\.valid\.txt: expected a text in UTF-8"):
        load("ptb", folder)


# --- reviews -------------------------------------------------------------------------------------


def write_reviews(folder: Path, texts: list[str], ratings: list[float]) -> Path:
    """One author with these, three with nothing to tell apart."""
    for author in ("Dennis+Schwartz", "James+Berardinelli", "Scott+Renshaw", "Steve+Rhodes"):
        place = folder / author
        place.mkdir(parents=True, exist_ok=True)
        (place / f"subj.{author}").write_text("".join(f"{text} \n" for text in texts))
        (place / f"rating.{author}").write_text("".join(f"{r}\n" for r in ratings))
        texts, ratings = ["x", "x"], [0.5, 0.6]
    return folder


def test_a_review_is_cut_after_every_200_words_and_filled_from_the_left(tmp_path: Path) -> None:
    long = ["long", *["x"] * 198, "last"]  # 200 words, and the mark
    write_reviews(tmp_path, [" ".join(long), "short y"], [0.1, 0.9])
    data = load("reviews", tmp_path)
    segments = np.concatenate([data.train.x, data.test.x])
    assert segments.shape == (9, 200)
    # x is the most frequent word, 3; the others come by the alphabet: last, long, short, y.
    rows = {tuple(row[row > 0]) for row in segments.tolist() for row in [np.array(row)]}
    assert rows == {(1, 5, *[3] * 198), (4,), (1, 6, 7), (1, 3)}
    assert all(not row[: np.count_nonzero(row == 0)].any() for row in segments)


def test_only_the_most_frequent_words_have_numbers(tmp_path: Path) -> None:
    words = [f"w{number:05}" for number in range(19_997)]  # and x: one too many
    write_reviews(tmp_path, [" ".join(words), "x"], [0.1, 0.9])
    data = load("reviews", tmp_path)
    numbers = np.unique(np.concatenate([data.train.x, data.test.x]))
    assert numbers.tolist() == list(range(20_000))
    whole = np.concatenate([data.train.x, data.test.x]).tolist()
    assert (
        max(row[-1] for row in whole if 2 in row) == 2
    )  # the last by the alphabet is the rare one


def ratings_of(data: Data) -> tuple[np.ndarray, np.ndarray]:
    return data.train.y * data.scale, data.test.y * data.scale


def test_ratings_are_standardised_by_the_training_segments(data_folder: Path) -> None:
    data = load("reviews", data_folder, seed=3)
    assert data.train.y.dtype == np.float32
    assert abs(data.train.y.mean()) < 1e-6
    assert abs(data.train.y.std() - 1) < 1e-6
    assert abs(data.test.y.mean()) > 1e-3
    # Ratings are tenths: so are their differences, in both parts.
    both = np.concatenate(ratings_of(data))
    tenths = (both - both[0]) * 10
    np.testing.assert_allclose(tenths, np.round(tenths), atol=1e-4)


def test_the_split_is_of_reviews_and_redrawn_for_each_seed(tmp_path: Path) -> None:
    texts = [" ".join([f"w{number}"] * 450) for number in range(50)]  # 3 segments each
    write_reviews(tmp_path, texts, [0.1, 0.9] * 25)
    seen = []
    for seed in (0, 0, 1):
        data = load("reviews", tmp_path, seed=seed)
        train, test = set(data.train.x[:, -1].tolist()), set(data.test.x[:, -1].tolist())
        assert train & test <= {53}  # the x of the other authors
        seen.append(test)
    assert seen[0] == seen[1] != seen[2]


def test_a_fifth_of_the_reviews_is_for_the_test(data_folder: Path) -> None:
    data = load("reviews", data_folder)
    starts = [(part.x == 1).sum() for part in (data.train, data.test)]
    assert starts == [192, 48]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda r: r[1:], r"expected 2 ratings, as many as reviews\. Found: 1"),
        (lambda r: [*r[1:], 1.5], r"expected ratings from 0 to 1\. Found: 0\.9 to 1\.5"),
        (lambda r: [*r[1:], "nan"], r"expected ratings from 0 to 1"),
        (lambda r: [*r[1:], "good"], r"expected a number in each line"),
    ],
)
def test_spoilt_ratings_are_named(spoil, words: str, tmp_path: Path) -> None:
    write_reviews(tmp_path, ["a", "b"], spoil([0.1, 0.9]))
    with pytest.raises(ValueError, match=rf"rating\.Dennis\+Schwartz: {words}"):
        load("reviews", tmp_path)


def test_a_spoilt_archive_is_named(folder: Path) -> None:
    path = folder / "scale_data.tar.gz"
    content = path.read_bytes()
    for spoilt in (content[:-400], b"no" + content, b""):
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match=r"scale_data\.tar\.gz: expected a whole tar archive"):
            load("reviews", folder)


def test_links_in_an_archive_are_not_followed(folder: Path) -> None:
    path = folder / "scale_data.tar.gz"
    wanted = "subj.Dennis+Schwartz"
    with tarfile.open(path) as old:
        kept = [(m, old.extractfile(m).read()) for m in old if not m.name.endswith(wanted)]
    with tarfile.open(path, "w:gz") as new:
        for member, content in kept:
            new.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo(f"scaledata/Dennis+Schwartz/{wanted}")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        new.addfile(link)
    with pytest.raises(ValueError, match=r"an archive with Dennis\+Schwartz/subj\.Dennis\+Schw"):
        load("reviews", folder)


# --- the guide -----------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [mnist, cifar10, ptb, reviews])
def test_the_guide_says_what_the_loaders_do(module: ModuleType) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "examples.md").read_text()
    table = [line for line in guide.splitlines() if line.startswith("|")]
    rows = [line for line in table if module.SOURCE.downloads[0].name in line]
    assert len(rows) == 1
    for folder in module.SOURCE.folders:
        assert f"`{folder}`" in rows[0]
    for download in module.SOURCE.downloads:
        assert f"`{download.name}`" in rows[0]
        address = download.urls[0]
        assert f"({address})" in rows[0] or f"({address.removesuffix(download.name)})" in rows[0]
