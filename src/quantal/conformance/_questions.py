"""Questions about the law of one coefficient, which several checks ask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quantal.conformance import _laws as laws
from quantal.conformance._adapter import Settings
from quantal.conformance._finding import Finding
from quantal.conformance._precision import is_half, roundoff, smallest, tolerance
from quantal.conformance._registry import Trial
from quantal.conformance._subject import Floats, Shape
from quantal.dilution import Dilution

__all__ = ["COARSE", "SWEEP", "Faults", "OneLaw", "values_of"]

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
        test, scale = laws.drop_test(self.law), min(self.law.rate, self.law.retain)
        wanted = [fault * scale for fault in faults.rate]
        stated = laws.affordable(test, wanted, self.trial.significance, MOST)
        n = test.samples(stated, self.trial.significance)
        dropped = int(np.count_nonzero(self.units(n) == 0))
        return self.trial.judge(f"P(c = 0), {self}", test, dropped, n, stated=stated)

    def sizes(self, faults: Faults = SWEEP) -> Finding:
        """Ask whether kept coefficients follow their law."""
        test = laws.size_test(self.law)
        wanted = [laws.alpha_fault(self.law, fault) for fault in faults.alpha]
        most = int(MOST * self.law.retain)
        stated = laws.affordable(test, wanted, self.trial.significance, most)
        kept = self.kept(test.samples(stated, self.trial.significance))
        distance = 1.0
        if len(kept):
            distance = laws.kept_distance(self.law, kept, self._rounding, smallest(self._exactness))
        return self.trial.judge(f"kept c, {self}", test, distance, len(kept), stated=stated)

    def mean(self, faults: Faults = SWEEP, power: int = 1) -> Finding:
        """Ask whether E[c], or E[c²], is right."""
        rounding = roundoff(self._exactness) if is_half(self._exactness) else 0.0
        test = laws.moment_test(self.law, power, rounding)
        wanted = [fault * self.law.moment(power) for fault in faults.mean]
        stated = laws.affordable(test, wanted, self.trial.significance, MOST)
        n = test.samples(stated, self.trial.significance)
        seen = float(np.mean(self.units(n).astype(np.float64) ** power))
        what = f"E[c{'' if power == 1 else '²'}], {self}"
        return self.trial.judge(what, test, seen, n, stated=stated)

    def alike(self) -> Finding:
        """Ask whether every kept coefficient is 1/p̄."""
        kept, top = self.kept(2**14), self.law.ceiling
        off = float(np.max(np.abs(kept / top - 1), initial=0.0))
        detail = f"a kept coefficient differs from {top:.6g} by {off:.2g} of it"
        if not len(kept):
            detail = "no unit was kept"
        right = len(kept) > 0 and off <= self._rounding
        return self.trial.require(f"kept c = 1/p̄, {self}", right, detail, len(kept))

    def in_range(self) -> Finding:
        """Ask whether no coefficient is negative, or above the ceiling."""
        c, top = self.units(2**16), self.law.ceiling
        low, high = float(np.min(c)), float(np.max(c))
        right = low >= 0 and high <= top * (1 + self._rounding)
        detail = f"coefficients from {low:.6g} to {high:.6g}"
        return self.trial.require(f"0 ≤ c ≤ {top:.4g}, {self}", right, detail, c.size)

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
        c = self.units(
            int((count + 6 * (count * self.law.rate) ** 0.5 + 40) / self.law.retain)
        )
        return np.asarray(c[c != 0][:count])

    @property
    def _exactness(self) -> np.dtype[Any]:
        return self.trial.subject.dtype if self.dtype is None else self.dtype

    @property
    def _rounding(self) -> float:
        return tolerance(self._exactness)


def values_of(
    trial: Trial,
    where: str,
    law: Dilution,
    c: Floats,
    dtype: np.dtype[Any] | None = None,
    faults: Faults = COARSE,
) -> Iterator[Finding]:
    """Ask whether given coefficients are 0 as often as they should be, and what the others are.

    Two questions that chance plays a part in, or one where kept coefficients are all alike.
    """
    exactness = trial.subject.dtype if dtype is None else dtype
    rounding, kept = tolerance(exactness), c[c != 0]
    drop, scale = laws.drop_test(law), min(law.rate, law.retain)
    wanted = [fault * scale for fault in faults.rate]
    stated = laws.affordable(drop, wanted, trial.significance, c.size)
    yield trial.judge(f"P(c = 0) {where}", drop, c.size - kept.size, c.size, stated=stated)
    if not kept.size:
        yield trial.require(f"kept c {where}", False, "no unit was kept")
    elif laws.is_alike(law):
        off = float(np.max(np.abs(kept / law.ceiling - 1)))
        detail = f"a kept coefficient differs from {law.ceiling:.6g} by {off:.2g} of it"
        yield trial.require(f"kept c = 1/p̄ {where}", off <= rounding, detail, kept.size)
    else:
        size = laws.size_test(law)
        wanted = [laws.alpha_fault(law, fault) for fault in faults.alpha]
        expected = int(0.9 * law.retain * c.size)
        stated = laws.affordable(size, wanted, trial.significance, expected)
        distance = laws.kept_distance(law, kept, rounding, smallest(exactness))
        yield trial.judge(f"kept c {where}", size, distance, kept.size, stated=stated)
