"""The check that a call is unlike itself when it is mirrored, turned or moved round."""

# ruff: noqa: D401  (the docstring of a check states what must hold)
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
from scipy import fft

from quantal.conformance._bounds import Largest, Mean, Overlapping
from quantal.conformance._finding import Finding
from quantal.conformance._laws import DROPOUT, MAIN, VARY_Q
from quantal.conformance._precision import coarseness
from quantal.conformance._questions import OneLaw
from quantal.conformance._registry import Trial, statistical
from quantal.conformance._shapes import BATCH
from quantal.conformance._signals import Signal, signals
from quantal.conformance._subject import Floats
from quantal.dilution import Dilution

LAWS = (MAIN[0], MAIN[2], DROPOUT[2], VARY_Q[4])
COPIES = 0.2

ON_THE_SPOT = 1 / 15
"""Units, as a share, that a mirror leaves where they are: two of an axis, of 32 at least."""

# The axes in another order, where that leaves the shape as it is.
TURNS = ((0, 1, 2), (0, 2, 1))


def _images(one: Signal) -> Iterator[tuple[str, Floats]]:
    """Yield the spectra of a call in all mirrors, and turned."""
    values = one.values.reshape(BATCH)
    axes = range(len(BATCH))
    for turn in TURNS:
        for count in range(len(BATCH) + 1):
            for mirrored in itertools.combinations(axes, count):
                image = np.flip(np.transpose(values, turn), mirrored)
                name = f"mirrored on axes {mirrored}" if mirrored else "moved round"
                name += "" if turn == TURNS[0] else f", axes in the order {turn}"
                yield name, fft.rfftn(image)


@statistical(
    "symmetries",
    fault="20% of units that are as those of a mirrored, turned or moved place",
    parts=len(LAWS),
)
def symmetries(trial: Trial) -> Iterator[Finding]:
    """A call has nothing to do with itself mirrored, turned or moved round, on any axis."""
    for law in LAWS:
        yield _unlike_itself(trial, law)


def _unlike_itself(trial: Trial, law: Dilution) -> Finding:
    made = signals(law, OneLaw(trial, law, BATCH).calls(1), coarseness(trial.subject.dtype))
    units = math.prod(BATCH)
    pairs = list(itertools.combinations_with_replacement(range(len(made)), 2))
    test = _test(trial, made, units * len(pairs) * len(TURNS) * 2 ** len(BATCH))
    spectra = [list(_images(one)) for one in made]
    worst = (0.0, "")
    for i, j in pairs:
        for name, image in spectra[j]:
            means = fft.irfftn(spectra[i][0][1].conj() * image, BATCH) / units
            if name == "moved round":
                means[0, 0, 0] = 0.0  # a call is like itself
            seen = max(float(means.max()), float(means.min()), key=abs)
            about = f"{made[i].name} and {made[j].name}, {name}, {law}"
            worst = max(worst, (seen, about), key=lambda one: abs(one[0]))
    seen, about = worst
    return trial.judge(about, test, seen, units, stated=COPIES)


def _test(trial: Trial, made: list[Signal], of: int) -> Largest[Overlapping]:
    """Return the test of the mean product of a unit and the one in its image's place.

    Following units from image to image leads round in a circle, so three sets of products are
    enough for those within a set to have no unit in common.
    """
    top = max(max(abs(one.low), one.high) for one in made) ** 2
    slack = ON_THE_SPOT + max(one.blur for one in made)
    product = Mean(0.0, 1.0 + slack * top, -top, top, slack=slack, fault_var=1.0 + COPIES * top)
    return Largest(Overlapping(product, sets=3), of)
