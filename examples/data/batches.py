"""Batches: the same for one seed in every condition and backend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from examples.data.sets import Data, Split
from examples.experiments import Experiment
from quantal._errors import wrong_value

__all__ = ["Batch", "batches", "evaluation", "order", "steps"]

EVALUATION_BATCH = 512  # samples


class Batch(NamedTuple):
    """Inputs and targets of one step."""

    x: NDArray
    y: NDArray


def steps(experiment: Experiment, data: Data) -> int:
    """Return the number of training steps in an epoch; what does not fill a batch is left out."""
    return _whole_batches(experiment, data.train)


def batches(experiment: Experiment, data: Data, seed: int, epoch: int) -> Iterator[Batch]:
    """Yield the training batches of an epoch, shuffled and augmented; a text in its order."""
    if data.train.y is None:
        steps(experiment, data)
        yield from _windows(data.train.x, experiment.batch, experiment.sizes["steps"])
        return
    rng = np.random.default_rng([seed, 1, epoch])
    for chosen in _order(experiment, data, rng):
        x = data.train.x[chosen]
        yield Batch(x if data.augment is None else data.augment(x, rng), data.train.y[chosen])


def order(experiment: Experiment, data: Data, seed: int, epoch: int) -> NDArray[np.int64] | None:
    """Return the sample numbers of each batch of `batches`, where those are just samples.

    None where they are not: images that are changed at random, and texts.
    """
    if data.train.y is None or data.augment is not None:
        return None
    return _order(experiment, data, np.random.default_rng([seed, 1, epoch]))


def evaluation(experiment: Experiment, data: Data, split: str) -> Iterator[Batch]:
    """Yield all of a split, in its order.

    A text's test split is read in one place, word after word from its first to its last, and its
    windows continue each other (cited); others are read as in training, in whole windows.
    """
    part = data.parts[split]
    if part.y is None:
        places = 1 if split == "test" else experiment.batch
        _whole_batches(experiment, part)
        yield from _windows(part.x, places, experiment.sizes["steps"], rest=places == 1)
        return
    for start in range(0, len(part.x), EVALUATION_BATCH):
        chosen = slice(start, start + EVALUATION_BATCH)
        yield Batch(part.x[chosen], part.y[chosen])


def _order(experiment: Experiment, data: Data, rng: np.random.Generator) -> NDArray[np.int64]:
    count = steps(experiment, data)
    drawn = rng.permutation(len(data.train.x))[: count * experiment.batch]
    return drawn.reshape(count, experiment.batch)


def _whole_batches(experiment: Experiment, part: Split) -> int:
    """Return how many batches a part fills; a text, how many windows of all its places at once."""
    if part.y is None:
        length = experiment.sizes["steps"]
        least = experiment.batch * (length + 1)  # the last word of a window is only a target
        count = (len(part.x) // experiment.batch - 1) // length
    else:
        least = experiment.batch
        count = len(part.x) // experiment.batch
    if count < 1:
        raise wrong_value("limit", f"at least {least}, one batch", len(part.x))
    return int(count)


def _windows(words: NDArray, batch: int, length: int, rest: bool = False) -> Iterator[Batch]:
    """Read a text in ``batch`` places at once; the targets are the next words.

    ``rest``: also the shorter window at the end.
    """
    streams = words[: len(words) // batch * batch].reshape(batch, -1)
    last = streams.shape[1] - 1  # the last word of all is only a target
    for start in range(0, last if rest else last - length + 1, length):
        end = min(start + length, last)
        yield Batch(streams[:, start:end], streams[:, start + 1 : end + 1])
