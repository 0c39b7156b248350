"""What the ``dilute`` of every backend takes, apart from a tensor, a law and tables."""

from __future__ import annotations

from typing import NamedTuple

import keras

from quantal.keys import Key

__all__ = ["NOTHING_SHARED", "RandomSource", "SharedAxes"]


class RandomSource(NamedTuple):
    """Where the random numbers of a layer come from.

    Attributes
    ----------
    seed : int, keras.random.SeedGenerator, quantal.Key or None
        What the user has given.
    generator : keras.random.SeedGenerator
        A seed and a count of calls, which Keras passes through compiled functions.
    """

    seed: int | keras.random.SeedGenerator | Key | None
    generator: keras.random.SeedGenerator


class SharedAxes(NamedTuple):
    """The axes, counting that of the batch, along which units share something.

    Attributes
    ----------
    coefficients : tuple of int
        Axes along which one coefficient is shared.
    probabilities : tuple of int
        Axes along which only the retain probability is shared.
    """

    coefficients: tuple[int, ...] = ()
    probabilities: tuple[int, ...] = ()


NOTHING_SHARED = SharedAxes()
