"""Questions about the law of one coefficient, which several checks ask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Settings
from quantal.conformance._bounds import Kolmogorov, Proportion
from quantal.conformance._finding import Finding
from quantal.conformance._precision import is_half, roundoff, smallest, tolerance
from quantal.conformance._registry import Trial
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

__all__ = ["COARSE", "MOST", "SWEEP", "Faults", "OneLaw", "values_of"]

MOST = 2**20
"""Units of a law that its checks may draw, where no smaller fault is promised."""


@dataclass(frozen=True)
class Faults:
    """How small a fault to find, as a share: the first of each that an affordable draw reveals.

    Of the rate or of 1 − rate, whichever is smaller; of α; of the mean.
    """

    rate: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)
    alpha: tuple[float, ...] = (0.1, 0.2, 0.4, 1.0)
    mean: tuple[float, ...] = (0.02, 0.05, 0.1, 0.2)

    def of_rate(self, trial: Trial, law: Dilution, test: Proportion, most: int) -> float:
        """Return the shift of P(c = 0) that so many units reveal."""
        scale = min(law.rate, law.retain)
        wanted = [fault * scale for fault in self.rate]
        return laws.affordable(test, wanted, trial.significance, most)

    def of_sizes(self, trial: Trial, law: Dilution, test: Kolmogorov, most: int) -> float:
        """Return the distance between laws that so many kept units reveal."""
        wanted = [laws.alpha_fault(law, fault) for fault in self.alpha]
        return laws.affordable(test, wanted, trial.significance, most)


SWEEP = Faults()
COARSE = Faults((0.05, 0.1, 0.2, 0.4, 0.8, 1.6), (0.2, 0.4, 1.0, 3.0, 10.0))


@dataclass(frozen=True)
class OneLaw:
    """A law on trial, drawn in some shape and dtype: that of the subject, if none is given."""

    trial: Trial
    law: Dilution
    shape: Shape
    dtype: np.dtype[Any] | None = None

    def __str__(self) -> str:
        return f"{self.law}" + ("" if self.dtype is None else f", {self.dtype.name}")

    def ask(self, faults: Faults = SWEEP) -> Iterator[Finding]:
        """Ask how often c is 0, what its other values are, and what mean they have."""
        yield self.drops(faults)
        if laws.is_alike(self.law):
            yield self.alike()
        else:
            yield self.sizes(faults)
            yield self.mean(faults)
            yield self.in_range()

    def drops(self, faults: Faults = SWEEP) -> Finding:
        """Ask whether P(c = 0) is the rate."""
        test = laws.drop_test(self.law, smallest(self.exactness))
        stated = faults.of_rate(self.trial, self.law, test, MOST)
        n = test.samples(stated, self.trial.significance)
        return _drops(self.trial, f"{self}", test, self.units(n), stated)

    def sizes(self, faults: Faults = SWEEP) -> Finding:
        """Ask whether kept coefficients follow their law."""
        test = laws.size_test(self.law, smallest(self.exactness))
        stated = faults.of_sizes(self.trial, self.law, test, int(MOST * self.law.retain))
        n = test.samples(stated, self.trial.significance)
        return _sizes(self.trial, f"{self}", self.law, self.kept(n), self.exactness, stated)

    def alike(self) -> Finding:
        """Ask whether every kept coefficient is 1/p̄."""
        return _alike(self.trial, f"{self}", self.law, self.kept(2**14), self.exactness)

    def mean(self, faults: Faults = SWEEP, power: int = 1) -> Finding:
        """Ask whether E[c], or E[c²], is right."""
        rounding = roundoff(self.exactness) if is_half(self.exactness) else 0.0
        test = laws.moment_test(self.law, power, rounding)
        wanted = [fault * self.law.moment(power) for fault in faults.mean]
        stated = laws.affordable(test, wanted, self.trial.significance, MOST)
        n = test.samples(stated, self.trial.significance)
        seen = float(np.mean(self.units(n).astype(np.float64) ** power))
        what = f"E[c{'' if power == 1 else '²'}], {self}"
        return self.trial.judge(what, test, seen, n, stated=stated)

    def in_range(self) -> Finding:
        """Ask whether no coefficient is negative, and the largest is just below the ceiling.

        By chance the largest of so many is no smaller, or in 2⁶⁴ runs once.
        """
        c, top, off = self.units(2**16), self.law.ceiling, tolerance(self.exactness)
        low, high = float(np.min(c)), float(np.max(c))
        least = float(self.law.ppf(1 - 64 * math.log(2) / c.size - 2 * laws.CELL)) * (1 - off)
        right = low >= 0 and least <= high <= top * (1 + off)
        detail = f"coefficients from {low:.6g} to {high:.6g}"
        what = f"c ≥ 0, the largest from {least:.4g} to {top:.4g}, {self}"
        return self.trial.require(what, right, detail, c.size)

    # --- draws ---------------------------------------------------------------------------------

    def calls(self, count: int) -> Floats:
        """Return the coefficients of so many calls, (calls, units)."""
        drawn = self.trial.subject.pool(Settings.of(self.law), count, self.shape, self.dtype)
        return drawn.reshape(count, -1)

    def units(self, count: int) -> Floats:
        """Return the coefficients of so many units."""
        return self.calls(-(-count // math.prod(self.shape))).reshape(-1)[:count]

    def kept(self, count: int) -> Floats:
        """Return up to ``count`` kept coefficients, out of as many units as should hold them."""
        # Six standard deviations to spare; should they not do, the test has a few samples fewer.
        share = self.law.retain * (1 - laws.lost(self.law, smallest(self.exactness)))
        needed = (count + 6 * (count * (1 - share)) ** 0.5 + 40) / share
        c = self.units(int(needed))
        return np.asarray(c[c != 0][:count])

    @property
    def exactness(self) -> np.dtype[Any]:
        """The dtype in which coefficients are drawn."""
        return self.trial.subject.dtype if self.dtype is None else self.dtype


def values_of(
    trial: Trial, where: str, law: Dilution, c: Floats, dtype: np.dtype[Any] | None = None
) -> Iterator[Finding]:
    """Ask how often given coefficients are 0, and what the others are, as far as they can tell.

    Two questions that chance plays a part in, or one where kept coefficients are all alike.
    """
    exactness, kept = trial.subject.dtype if dtype is None else dtype, c[c != 0]
    test = laws.drop_test(law, smallest(exactness))
    stated = COARSE.of_rate(trial, law, test, c.size)
    if test.detectable(c.size, trial.significance) <= stated:
        yield _drops(trial, where, test, c, stated)
    if laws.is_alike(law):
        yield _alike(trial, where, law, kept, exactness)
    else:
        # How many are kept is left to chance: a tenth fewer must do.
        sizes = laws.size_test(law, smallest(exactness))
        most = int(0.9 * law.retain * (1 - laws.lost(law, smallest(exactness))) * c.size)
        stated = COARSE.of_sizes(trial, law, sizes, most)
        if most > 0 and sizes.detectable(most, trial.significance) <= stated:
            yield _sizes(trial, where, law, kept, exactness, stated)


def _drops(trial: Trial, where: str, test: Proportion, c: Floats, stated: float) -> Finding:
    dropped = int(np.count_nonzero(c == 0))
    return trial.judge(f"P(c = 0), {where}", test, dropped, c.size, stated=stated)


def _sizes(
    trial: Trial, where: str, law: Dilution, kept: Floats, exactness: np.dtype[Any], stated: float
) -> Finding:
    distance = math.nan
    if kept.size:
        distance = laws.kept_distance(law, kept, tolerance(exactness), smallest(exactness))
    test = laws.size_test(law, smallest(exactness))
    return trial.judge(f"kept c, {where}", test, distance, kept.size, stated=stated)


def _alike(
    trial: Trial, where: str, law: Dilution, kept: Floats, exactness: np.dtype[Any]
) -> Finding:
    off = float(np.max(np.abs(kept / law.ceiling - 1), initial=0.0))
    right = kept.size > 0 and off <= tolerance(exactness)
    detail = f"a kept coefficient differs from {law.ceiling:.6g} by {off:.2g} of it"
    if not kept.size:
        detail = "no unit was kept"
    return trial.require(f"kept c = 1/p̄, {where}", right, detail, kept.size)
