"""Laws that are right where one looks first: at moderate rates, at small α, in one variant."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from port import Port
from recipe import RNG, Shape

from mutants.register import caught_by
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.table import table


class Replaced(Port):
    """The law of other settings is drawn."""

    def law(self, s: Settings) -> Dilution:
        return self.instead(s).law

    def instead(self, s: Settings) -> Settings:
        raise NotImplementedError


@caught_by("drop-probability")
class HighRatesClipped(Replaced):
    """No more than nine units in ten are dropped."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=min(s.rate, 0.9))


@caught_by("kept-values")
class AlphaCapped(Replaced):
    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=min(s.alpha, 10.0) if math.isfinite(s.alpha) else s.alpha)


@caught_by("kept-values")
class LargeAlphaIsDropout(Replaced):
    """From α = 50 on, nothing seems to vary any more."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=math.inf if s.alpha >= 50 else s.alpha)


@caught_by("kept-values")
class LargeAlphaIsNormal(Port):
    """From α = 20 on, p is normal with the right mean and variance."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None or s.vary != "pq" or not 20 <= s.alpha < 1e5:
            return super().coefficients(s, mask_shape, p_shape, rng)
        sd = math.sqrt(s.rate * (1 - s.rate) / (s.alpha / (1 - s.rate) + 1))
        p = np.clip(rng.normal(1 - s.rate, sd, mask_shape), 0, 1)
        kept = rng.random(mask_shape) < 1 - s.rate
        return p / (1 - s.rate) ** 2 * kept / self.gain(s)


@caught_by("kept-values")
class AlphaOffAtHighRates(Replaced):
    """At rates above 0.7, β is that of another α."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, alpha=1.3 * s.alpha if s.rate > 0.7 else s.alpha)


@caught_by("tiny-rate")
class TinyRateDoubled(Replaced):
    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=2 * s.rate if s.rate < 1e-3 else s.rate)


@caught_by("tiny-rate")
class RateRoundedUp(Port):
    """One table, with as many cells for the dropped as are needed, and no fewer."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        if p_shape is not None:
            return super().coefficients(s, mask_shape, p_shape, rng)
        return table(s.law).values[1, self.cells(s, mask_shape, rng)]


@caught_by("unit-mean")
class UnitMeanOfAnotherVariant(Port):
    """With vary="q", where the mean is 1 anyway, it is divided by that of QSD."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        if s.unit_mean and s.vary == "q":
            c = c / Dilution(s.rate, s.alpha).mean
        return c


@caught_by("unit-mean")
class UnitMeanOfVaryP(Port):
    """With vary="p" kept units are divided by a mean that is not theirs."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return c / Dilution(s.rate, s.alpha).mean if s.unit_mean and s.vary == "p" else c


@caught_by("vary-q")
class VaryQAtSmallAlphaOnly(Replaced):
    """Above α = 5, vary="q" is QSD."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, vary="pq" if s.vary == "q" and s.alpha > 5 else s.vary)


@caught_by("dropout-limit")
class DropoutUnscaledAtHighRates(Port):
    """At α = inf and high rates kept units are scaled by the square of what they should be."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        c = super().coefficients(s, mask_shape, p_shape, rng)
        return c / (1 - s.rate) if math.isinf(s.alpha) and s.rate > 0.75 else c


@caught_by("drawn-laws")
class RateOfOneDigit(Replaced):
    """The rate is rounded to a tenth, or to a twentieth."""

    def instead(self, s: Settings) -> Settings:
        return replace(s, rate=round(20 * s.rate) / 20 if 0.05 < s.rate < 0.95 else s.rate)


@caught_by("settings-matter")
class TableRememberedByRate(Port):
    """A cache of tables whose keys are rates alone."""

    def __init__(self) -> None:
        self.made: dict[float, Dilution] = {}

    def law(self, s: Settings) -> Dilution:
        return self.made.setdefault(s.rate, s.law)


@caught_by("settings-matter")
class UnitMeanForgottenWithSharedP(Port):
    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        s = replace(s, unit_mean=s.unit_mean and p_shape is None)
        return super().coefficients(s, mask_shape, p_shape, rng)
