"""Training data in portions of many steps, each of which is one call of the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import numpy as np

from examples.data import Batch
from examples.data.batches import order
from examples.run import Run
from examples.with_jax.devices import Place

__all__ = ["Feed", "Portion", "joined"]

# A call costs about as much as a step of a small model; steps of a large one are seen one by one.
_TOGETHER = {"mlp": 100, "lenet5": 100}
# On a CPU, XLA's convolutions are 3.3 times slower within a loop (LeNet-5, jaxlib 0.10).
_TOGETHER_ON_CPU = {"mlp": 100}


class Portion(NamedTuple):
    """Steps that follow each other.

    ``batches`` are inputs and targets or, where ``samples`` are all those of the run, the numbers
    of some. They have the steps along their first axis, which is filled up to the same length in
    every portion; ``steps`` of them are to be done, from the step ``first`` of the epoch on.
    """

    first: int
    steps: int
    batches: Any
    samples: Batch | None = None


class Feed:
    """Makes the portions of a run's epochs."""

    def __init__(self, run: Run, place: Place) -> None:
        self.run, self.place = run, place
        kinds = _TOGETHER_ON_CPU if place.on_cpu else _TOGETHER
        self.length = min(kinds.get(run.experiment.model, 1), run.steps)
        self.samples: Batch | None = None

    def epoch(self, epoch: int) -> Iterator[Portion]:
        """Yield the portions of an epoch."""
        run = self.run
        numbers = order(run.experiment, run.data, run.settings.seed, epoch)
        if numbers is None:
            yield from self.portions(run.batches(epoch))
            return
        if self.samples is None:
            train: Any = run.data.train  # which has targets: it is no text
            self.samples = self.place.everywhere(Batch(train.x, train.y))
        for portion in self.portions(numbers.astype(np.int32)):
            yield portion._replace(samples=self.samples)

    def portions(self, batches: Iterable[Any], first: int = 0) -> Iterator[Portion]:
        """Yield batches, or rows of sample numbers, in portions on the device."""
        for portion in joined(batches, self.length, first):
            yield portion._replace(batches=self.place.divided(portion.batches, axis=1))


def joined(batches: Iterable[Any], length: int, first: int = 0) -> Iterator[Portion]:
    """Join batches to portions of a length."""
    batches = iter(batches)
    while some := list(islice(batches, length)):
        yield Portion(first, len(some), jax.tree.map(lambda *parts: _stack(parts, length), *some))
        first += len(some)


def _stack(parts: Sequence[Any], length: int) -> Any:
    return np.stack([*parts, *[parts[-1]] * (length - len(parts))])
