"""Checks of streams that are too short: in one call of millions of units, and over many calls."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Largest, Proportion, largest
from quantal.conformance._checks.granularity import first
from quantal.conformance._checks.independence import at_all_distances
from quantal.conformance._checks.places import Margin, by_place, folded
from quantal.conformance._finding import Finding
from quantal.conformance._laws import DROPOUT, MAIN, VARY_P, VARY_Q
from quantal.conformance._precision import coarseness
from quantal.conformance._questions import OneLaw, values_of
from quantal.conformance._registry import Trial, exact, statistical
from quantal.conformance._repeats import repeated_window, window_width
from quantal.conformance._shapes import BATCH
from quantal.conformance._signals import pair_test, signals
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

LAW = MAIN[0]
LARGE = (9001, 1003)
"""Nine million units: thousands of samples, and more than 2²³ units."""

LARGE_QUICK = (4129, 1024)
COPIES = 0.01
LAST_COPIES = 0.1
COPIES_OF_A_MILLION = 0.03
MILLION = (1049, 1003)
"""A few units more than 2²⁰."""

MILLIONS: tuple[Shape, ...] = (MILLION, (70_003, 15), (3, 653, 541), (2, 524_291))
"""The same on other axes, one of them longer than 2⁸, 2¹⁶ or 2¹⁹ indices."""

OTHERS = (
    *(Settings.of(law) for law in (DROPOUT[2], VARY_Q[4], VARY_P[2])),
    Settings.of(LAW, broadcast_dims=(0,)),
    Settings.of(LAW, p_broadcast_dims=(0,)),
)
CALLS, CALLS_QUICK = 48, 8
"""Calls of which no two have a stretch in common, as two windows of one stock of numbers have."""

OTHER_DTYPES = 3  # at most
PARTS = 64
BLOCKS = (2500, 4096, 5000, 8192, 10_000, 16_384, 32_768, 65_536)
ALWAYS = 0.49  # how far the share of a place that is always or never dropped is from a half


def _large(trial: Trial) -> Floats:
    shape = LARGE_QUICK if trial.quick else LARGE
    return np.asarray(trial.subject.pool(Settings.of(LAW), 1, shape)[0])


def _large_and_next(trial: Trial) -> Floats:
    """Return a large call, and a smaller one of the seed after it, which may lie within it."""
    settings, large = Settings.of(LAW), _large(trial)
    (seed,) = trial.subject.seeds(f"{settings} {large.shape}", 1)  # that of the pool's first call
    after = trial.subject.draw(settings, (seed + 1) % 2**31, BATCH if trial.quick else MILLION)
    return np.concatenate([large.reshape(-1), after.reshape(-1)])


def _unrepeated(trial: Trial, what: str, law: Dilution, c: Floats) -> Iterator[Finding]:
    """Ask whether no stretch of coefficients, nor of masks, comes twice."""
    stream = c.reshape(-1)
    width = window_width(max(law.rate, 1 - law.rate), stream.size)
    for about, values in (("coefficients", stream), ("masks", (stream == 0).astype(np.float64))):
        found = repeated_window(values, width)
        detail = (
            f"{width} {about} from unit {found[0]} on come again at {found[1]}" if found else ""
        )
        yield trial.require(f"{about} {what}", found is None, detail, stream.size)


@exact("no-repeats", fault="a stretch of 128 units that comes twice, anywhere")
def no_repeats(trial: Trial) -> Iterator[Finding]:
    """No stretch of a stream comes twice: in a call of millions, or in two of different seeds."""
    if not trial.quick:
        yield from _others_unrepeated(trial)
    yield from _unrepeated(
        trial, "of one large call, and of the next seed", LAW, _large_and_next(trial)
    )
    calls = CALLS_QUICK if trial.quick else CALLS
    seeds = OneLaw(trial, LAW, BATCH).calls(calls)
    yield from _unrepeated(trial, "of calls with different seeds", LAW, seeds)
    if not trial.subject.lacks("calls"):
        (seed,) = trial.subject.seeds("no-repeats", 1)
        layer = trial.subject.layer(Settings.of(LAW), seed, BATCH, min(calls, 16))
        yield from _unrepeated(trial, "of calls of one layer", LAW, layer)


@dataclass(frozen=True)
class Million:
    """A call of a million units of which no others are copies."""

    settings: Settings
    dtype: np.dtype[Any]
    shape: Shape

    def __str__(self) -> str:
        return f"{self.settings}, {self.dtype.name}, {self.shape}"

    def draw(self, trial: Trial) -> Floats:
        """Return the coefficients; those of a group once, if they are shared."""
        c = trial.subject.pool(self.settings, 1, self.shape, self.dtype)[0]
        return np.asarray(c[0] if self.settings.broadcast_dims else c)


def _millions(trial: Trial) -> Iterator[Million]:
    """Yield calls in other dtypes, of other laws and of shared axes."""
    subject = trial.subject
    tried = [(Settings.of(LAW), dtype) for dtype in subject.dtypes[1:]]
    tried += [(settings, subject.dtype) for settings in OTHERS]
    for number, (settings, dtype) in enumerate(tried):
        million = MILLIONS[(number + 1) % len(MILLIONS)]
        for shape in dict.fromkeys((MILLION, million)):
            # With one axis shared, as many units more, so that the others are as many.
            yield Million(settings, dtype, (2, *shape) if settings.broadcast_dims else shape)


def _others_unrepeated(trial: Trial) -> Iterator[Finding]:
    """Ask the same of masks alone, in other dtypes, of other laws and of shared axes."""
    subject = trial.subject
    for million in _millions(trial):
        what = f"of a call of a million, {million}"
        yield _masks_unrepeated(trial, what, million.settings.rate, million.draw(trial))
    # Streams that lie one behind the other, each with room for 2²⁰ units, or rows, or more.
    settings = Settings.of(LAW)
    (seed,) = subject.seeds("no-repeats, neighbours", 1)
    seed %= 2**31 - 1
    for shape in (MILLION, MILLIONS[1]):
        both = np.stack([subject.draw(settings, seed + step, shape) for step in (0, 1)])
        what = f"of a million units of two neighbouring seeds, {shape}"
        yield _masks_unrepeated(trial, what, LAW.rate, both)
    if not subject.lacks("calls"):
        both = subject.layer(settings, seed, MILLION, 2)
        yield _masks_unrepeated(trial, "of two calls of a million of one layer", LAW.rate, both)


def _masks_unrepeated(trial: Trial, what: str, rate: float, c: Floats) -> Finding:
    """Ask whether no stretch of masks comes twice."""
    masks = (c == 0).reshape(-1).astype(np.float64)
    width = window_width(max(rate, 1 - rate), masks.size)
    found = repeated_window(masks, width)
    detail = f"{width} units from {found[0]} on come again at {found[1]}" if found else ""
    return trial.require(f"masks {what}", found is None, detail, masks.size)


@statistical(
    "large-call",
    fault="1% of units that are copies, at any distance; a rate off by 4% in one part of 64; at one"
    " place of 2¹⁶ always or never 0; of a million, in each dtype, a rate off by 5%, another α",
    parts=lambda quick: 5 if quick else 5 + 5 * (OTHER_DTYPES + len(OTHERS)),
)
def large_call(trial: Trial) -> Iterator[Finding]:
    """One call of millions of units, in thousands of samples, is as right as a small one."""
    c = _large(trial)
    dropped, (samples, units) = c == 0, c.shape
    part = c.size // PARTS
    parts = dropped.reshape(-1)[: PARTS * part].reshape(PARTS, part).sum(axis=1)
    margins = [Margin(f"part of {PARTS}", parts, np.full(PARTS, part))]
    yield by_place(trial, f"P(c = 0), {LAW}", _places(PARTS), margins, 0.04 * LAW.rate)
    margins = [
        Margin("sample", dropped.sum(axis=1), np.full(samples, units)),
        Margin("unit of a sample", dropped.sum(axis=0), np.full(units, samples)),
    ]
    yield by_place(trial, f"P(c = 0), {LAW}", _places(samples + units), margins, 0.4 * LAW.rate)
    yield _blocks(trial, dropped)
    flat, coarse = c.reshape(1, -1), coarseness(trial.subject.dtype)
    mask = signals(LAW, flat, coarse)[:1]
    yield at_all_distances(trial, f"{LAW}", mask, c.size // 2, COPIES)
    last = flat[:, -math.prod(BATCH) :]
    made = signals(LAW, last, coarse)
    yield at_all_distances(trial, f"{LAW}, the last units", made, last.size // 2, LAST_COPIES)
    for million in () if trial.quick else _millions(trial):
        c, settings = million.draw(trial), million.settings
        own = first(c, settings.p_broadcast_dims).reshape(-1)[::7]  # they are enough
        yield from values_of(trial, f"{million}", settings.law, own, million.dtype)
        if not settings.p_broadcast_dims and million.shape[-2:] == MILLION:
            yield _mirrored(trial, f"{million}", settings.law, c)


def _mirrored(trial: Trial, where: str, law: Dilution, c: Floats) -> Finding:
    """Ask whether masks have nothing to do with those the same way behind any place."""
    made = signals(law, c.reshape(1, -1), 0.0)[0]
    units = made.values.size
    centres = np.arange(units // 4, 2 * units - units // 4)  # sums of two indices
    pairs = np.minimum(centres + 1, 2 * units - 1 - centres)
    # Each product comes twice, and that of a unit with itself, if there is one, once.
    own = np.zeros(2 * units)
    own[::2][:units] = made.values[0] ** 2
    sums = fft.irfft(fft.rfft(made.values[0], 2 * units) ** 2, 2 * units)
    terms = pairs // 2
    means = (sums - own)[centres] / 2 / terms
    test = pair_test([made], COPIES_OF_A_MILLION, len(centres), sets=1)
    index, seen, count = largest(test.test, means, terms)
    what = f"masks mirrored about {centres[index] / 2}, {where}"
    return trial.judge(what, test, seen, count, stated=COPIES_OF_A_MILLION)


def _blocks(trial: Trial, dropped: NDArray[np.bool_]) -> Finding:
    """Ask whether no place of a block, as the first one of each, is always or never dropped."""
    test = _places(sum(BLOCKS))
    needed = test.samples(ALWAYS, trial.significance)
    hits, count = dropped.reshape(-1), np.ones(dropped.size, np.int64)
    found = [
        folded(hits, count, period, dropped.shape)
        for period in BLOCKS
        if hits.size // period >= needed
    ]
    return by_place(trial, f"P(c = 0), {LAW}", test, found, ALWAYS)


def _places(count: int) -> Largest[Proportion]:
    return Largest(Proportion(LAW.rate, slack=4 * laws.CELL), count)
