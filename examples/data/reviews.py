"""The Cornell film reviews with ratings (scale data, version 1.0), cut into segments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from examples.data.files import Download, File, Source, wrong_file
from examples.data.sets import Data, Split

__all__ = ["SOURCE", "load"]

_AUTHORS = ("Dennis+Schwartz", "James+Berardinelli", "Scott+Renshaw", "Steve+Rhodes")
SOURCE = Source(
    title="Cornell film reviews",
    folders=("reviews", "scaledata", "reviews/scaledata", "scale_data/scaledata"),
    files=tuple(f"{who}/{what}.{who}" for what in ("subj", "rating") for who in _AUTHORS),
    downloads=(
        Download(
            "scale_data.tar.gz",
            ("https://www.cs.cornell.edu/people/pabo/movie-review-data/scale_data.tar.gz",),
            # No checksum is published: this one was computed from a complete copy, over the texts
            # and then the ratings of the four authors, so that it holds however they are packed.
            contents="aa10b519f8c8628b0d226debca4bca8cb68aef2d9cd1f09277aa17ca6bc70339",
            unpacked=16_000_000,  # of 11,407,360, if packed as the copy
        ),
    ),
)
_LENGTH = 200  # words of a segment
_VOCABULARY = 20_000
# The first numbers are no words: filling, the start of a review, a rare word (cited).
_PADDING, _START, _RARE, _FIRST = 0, 1, 2, 3
_TEST = 0.2


def load(folder: Path | None, seed: int) -> Data:
    """Read them; a fifth of the reviews, redrawn for each seed, is for the test.

    A review, with a mark at its start, is cut every 200 words; all its segments have its rating and
    are on the same side of the split. The vocabulary, like the cited one, is that of all reviews,
    so the same for each seed; ratings are standardised by the training segments.
    """
    files = SOURCE.read(folder)
    authors = zip(files[: len(_AUTHORS)], files[len(_AUTHORS) :], strict=True)
    reviews = [review for texts, ratings in authors for review in _reviews(texts, ratings)]
    counts = Counter(word for words, _ in reviews for word in words)
    common = sorted(counts, key=lambda word: (-counts[word], word))[: _VOCABULARY - _FIRST]
    number = {word: n for n, word in enumerate(common, _FIRST)}

    order = np.random.default_rng([seed, 2]).permutation(len(reviews))
    shuffled = [reviews[n] for n in order]
    tested = round(_TEST * len(reviews))
    test, train = (_segments(part, number) for part in (shuffled[:tested], shuffled[tested:]))
    mean, scale = float(train[1].mean()), float(train[1].std())
    sides = [Split(x, ((y - mean) / scale).astype(np.float32)) for x, y in (train, test)]
    return Data(train=sides[0], test=sides[1], scale=scale)


def _reviews(texts: File, ratings: File) -> list[tuple[list[str], float]]:
    lines = texts.content.decode("latin-1").removesuffix("\n").split("\n")
    try:
        values = [float(value) for value in ratings.content.split()]
    except ValueError as error:
        raise wrong_file(ratings.path, "a number in each line", error) from error
    if len(values) != len(lines):
        raise wrong_file(ratings.path, f"{len(lines)} ratings, as many as reviews", len(values))
    if not all(0 <= value <= 1 for value in values):
        raise wrong_file(ratings.path, "ratings from 0 to 1", f"{min(values)} to {max(values)}")
    return [(line.split(), value) for line, value in zip(lines, values, strict=True)]


def _segments(
    reviews: list[tuple[list[str], float]], number: dict[str, int]
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the segments, filled up from the left, and their ratings."""
    x, y = [], []
    for words, rating in reviews:
        numbers = [_START, *(number.get(word, _RARE) for word in words)]
        for start in range(0, len(numbers), _LENGTH):
            piece = numbers[start : start + _LENGTH]
            x.append([_PADDING] * (_LENGTH - len(piece)) + piece)
            y.append(rating)
    return np.array(x, np.int32), np.array(y)
