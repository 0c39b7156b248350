"""The law of Quantal Synaptic Dilution: its parameters, their checks, and its exact mathematics.

With p̄ = 1 − rate and β = α·rate/p̄, a unit is multiplied by c = p·m/p̄², where p ~ Beta(α, β) and
m ~ Bernoulli(p). Integrating p out, c is 0 with probability ``rate``; otherwise it is p/p̄² with
p ~ Beta(α + 1, β), since units with a large p are the ones that tend to be kept. Everything in
this file follows from that sentence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from quantal._arguments import flag, floats, instance, integer, number, word
from quantal._arguments import shape as checked_shape
from quantal._beta import log_beta, quantile
from quantal._errors import ALPHA, wrong_value

__all__ = ["Dilution", "Vary"]

Vary = Literal["pq", "p", "q"]
"""What the beta distribution governs: see `Dilution`."""

_NO_ALPHA = (
    f"alpha: expected {ALPHA}; it has no default, since no "
    "one value suits every rate. The paper used 0.2 at rates 0.1 and 0.2 (MNIST, CIFAR-10), 1 at "
    "rate 0.5 (film reviews), 5 at rate 0.5 and 10 at rate 0.6 (Penn Treebank). To choose it by "
    "the mean gain instead: Dilution.with_mean_gain(rate, gain).alpha. Received: no alpha."
)


@dataclass(frozen=True, init=False, repr=False)
class Dilution:
    """The parameters of a dilution and the exact law of its coefficients.

    Parameters
    ----------
    rate : float
        The probability in [0, 1] that a unit is dropped. 0 is the identity, 1 gives zeros.
    alpha : float
        The homogeneity, above 0: the smaller, the more the units differ. ``inf`` is standard
        dropout.
    vary : {"pq", "p", "q"}
        What the beta distribution governs: the retain probability and the size ("pq", QSD), the
        probability alone ("p", the paper's "Dist. p") or the size alone ("q", "Dist. q").
    unit_mean : bool
        Divide by the mean, so that E[c] = 1.

    Examples
    --------
    >>> law = Dilution(0.2, 0.2)
    >>> law
    Dilution(rate=0.2, alpha=0.2)
    >>> round(law.mean, 6), round(law.std, 6)
    (1.2, 0.627163)
    >>> float(law.cdf(0)), float(law.ppf(1.0)) == 1 / law.retain**2
    (0.2, True)
    """

    rate: float
    alpha: float
    vary: Vary
    unit_mean: bool

    def __init__(
        self,
        rate: float,
        alpha: float | None = None,  # left out, it gets an error that helps
        *,
        vary: Vary = "pq",
        unit_mean: bool = False,
    ) -> None:
        expected = "a number in [0, 1]"
        rate = number("rate", rate, expected)
        if not 0 <= rate <= 1:
            raise wrong_value("rate", expected, rate)
        if alpha is None:
            raise TypeError(_NO_ALPHA)
        alpha = number("alpha", alpha, ALPHA)
        if not alpha > 0:
            raise wrong_value("alpha", ALPHA, alpha)
        put = object.__setattr__  # as for all that is frozen
        # + 0.0 turns a rate of -0.0 into 0.0, so that equal laws have equal representations.
        put(self, "rate", rate + 0.0)
        put(self, "alpha", alpha)
        put(self, "vary", word("vary", vary, get_args(Vary)))
        put(self, "unit_mean", flag("unit_mean", unit_mean))

    def __repr__(self) -> str:
        extra = f", vary={self.vary!r}" if self.vary != "pq" else ""
        extra += ", unit_mean=True" if self.unit_mean else ""
        return f"Dilution(rate={self.rate!r}, alpha={self.alpha!r}{extra})"

    @classmethod
    def with_mean_gain(cls, rate: float, gain: float) -> Dilution:
        """Return the dilution of that rate whose coefficients have the mean ``gain``.

        Parameters
        ----------
        rate : float
            The drop rate, in [0, 1).
        gain : float
            The wanted E[c]: from 1 (standard dropout, α = inf) up to, but not including,
            1/(1 − rate), which is reached as α goes to 0.

        Examples
        --------
        >>> Dilution.with_mean_gain(0.5, 1.25)
        Dilution(rate=0.5, alpha=1.5)
        """
        dropout = cls(rate, math.inf)
        rate, retain = dropout.rate, dropout.retain
        if retain == 0:
            raise wrong_value("rate", "a number in [0, 1), as rate 1 has no gain", rate)
        expected = f"a number in [1, {1 / retain:g}) at rate {rate:g}"
        gain = number("gain", gain, expected)
        if gain == 1:
            return dropout
        alpha = rate / (gain - 1) - retain if 1 < gain < 1 / retain else 0
        if alpha <= 0:  # by rounding, also for a gain just below its limit
            raise wrong_value("gain", expected, gain)
        return cls(rate, alpha)

    # --- the numbers ---------------------------------------------------------------------------

    @property
    def retain(self) -> float:
        """The mean retain probability p̄ = 1 − rate."""
        return 1 - self.rate

    @property
    def beta(self) -> float:
        """The second parameter of the beta distribution, β = α·rate/p̄."""
        if self.rate == 0:
            return 0.0
        return self.alpha * self.rate / self.retain if self.rate < 1 else math.inf

    @property
    def mean(self) -> float:
        """E[c] = 1 + rate/(α + 1 − rate) for QSD; 1 for its variants; 0 at rate 1."""
        return self.moment(1)

    @property
    def var(self) -> float:
        """The variance of c, in a form without cancellation."""
        if self.rate == 1:
            return 0.0
        kept, a = self.retain, self.alpha
        var = self.rate / kept
        if self._beta_parameters is None:
            return var
        if self.vary == "q":
            return var * (a + 1 + kept) / (a + kept)
        grown = (a * (2 - kept) + 2 * kept * self.rate) / (a + kept) / (a + 2 * kept)
        var *= (a + 1) / (a + kept) * (1 + grown)
        return var / self._raw_mean**2 if self.unit_mean else var

    @property
    def std(self) -> float:
        """The standard deviation of c."""
        return math.sqrt(self.var)

    def moment(self, k: int) -> float:
        """Return E[cᵏ] for an integer k ≥ 0.

        E[cᵏ] is a ratio of rising factorials, which reduces to
        p̄¹⁻ᵏ · Π (α + j)/(α + j·p̄) with j from 1 to k (QSD) or to k − 1 (``vary="q"``).

        Examples
        --------
        >>> Dilution(0.5, 1).moment(2)
        4.0
        """
        k = integer("k", k, "an integer of at least 0, and at most 10**6", 0, 10**6 + 1)
        if k == 0:
            return 1.0
        if self.rate == 1:
            return 0.0
        factors = [1 / self.retain] * (k - 1)
        if self._beta_parameters is not None:
            js = range(1, k + 1 if self.vary == "pq" else k)
            factors += [(self.alpha + j) / (self.alpha + j * self.retain) for j in js]
        if self.unit_mean:
            factors += [1 / self._raw_mean] * k
        try:
            return math.prod(factors)
        except OverflowError:
            return math.inf

    # --- the law -------------------------------------------------------------------------------

    @property
    def _raw_mean(self) -> float:
        """E[c] before ``unit_mean`` divides by it."""
        if self.vary != "pq" or self._beta_parameters is None:
            return 1.0
        return (self.alpha + 1) / (self.alpha + self.retain)

    @property
    def _beta_parameters(self) -> tuple[float, float] | None:
        """(a, b) if kept coefficients are p·``ceiling`` with p ~ Beta(a, b); None if all alike."""
        # Past 1e12 they differ by a millionth at most, and a rate below 1e-15 is 0.
        if self.vary == "p" or self.alpha > 1e12 or not 1e-15 < self.rate < 1:
            return None
        # Below that, p is 0 or 1 to every digit, and special functions are best left alone.
        alpha = max(self.alpha, 1e-12 * self.retain)
        return alpha + (self.vary == "pq"), alpha * self.rate / self.retain

    @property
    def ceiling(self) -> float:
        """The largest value that c can take: 1/p̄², or 1/p̄ where kept units are all alike."""
        if self.rate == 1:
            return 0.0
        if self._beta_parameters is None:
            return 1 / self.retain
        return 1 / self.retain**2 / (self._raw_mean if self.unit_mean else 1)

    def pdf(self, c: ArrayLike) -> NDArray[np.float64]:
        """Return the density of c; infinite where c has an atom (0, or a single kept value)."""
        c = floats("c", c)
        density = np.where(np.isnan(c), np.nan, 0.0)
        if self._beta_parameters is not None:
            inside = (c > 0) & (c < self.ceiling)
            p = np.where(inside, c / self.ceiling, 0.5)
            a, b = self._beta_parameters
            logs = special.xlogy(a - 1, p) + special.xlog1py(b - 1, -p) - log_beta(a, b)
            with np.errstate(over="ignore"):  # close to an atom, no float may be large enough
                inner = self.retain / self.ceiling * np.exp(logs)
            density = np.where(inside, inner, density)
            edge = np.inf if b < 1 else self.retain / self.ceiling * a if b == 1 else 0.0
            density = np.where(c == self.ceiling, edge, density)
        elif self.rate < 1:
            density = np.where(c == self.ceiling, np.inf, density)
        return np.where((c == 0) & (self.rate > 0), np.inf, density)[()]

    def cdf(self, c: ArrayLike) -> NDArray[np.float64]:
        """Return P(coefficient ≤ c).

        Examples
        --------
        >>> Dilution(0.5, 1).cdf([-1, 0, 2, 4])
        array([0.   , 0.5  , 0.625, 1.   ])
        """
        c = floats("c", c)
        if self._beta_parameters is None:
            kept = (c >= self.ceiling).astype(float)
        else:
            kept = special.betainc(*self._beta_parameters, np.clip(c / self.ceiling, 0, 1))
        below = self.rate + self.retain * kept
        return np.where(np.isnan(c), np.nan, np.where(c < 0, 0.0, below))[()]

    def ppf(self, u: ArrayLike) -> NDArray[np.float64]:
        """Return the quantiles of c: 0 for u up to ``rate``, then those of the kept values.

        Examples
        --------
        >>> Dilution(0.5, 1).ppf([0.25, 0.625, 1])
        array([0., 2., 4.])
        """
        u = floats("u", u)
        if np.any((u < 0) | (u > 1)):
            raise wrong_value("u", "probabilities in [0, 1]", u)
        if self._beta_parameters is None:
            kept = np.full_like(u, self.ceiling)
        else:
            a, b = self._beta_parameters
            # From both ends: 1 − u keeps the digits that u has lost close to 1.
            from_left = np.clip((u - self.rate) / self.retain, 0, 1)
            from_right = np.clip((1 - u) / self.retain, 0, 1)
            kept = self.ceiling * quantile(a, b, from_left, from_right)
        dropped = (u < self.rate) | (self.rate == 1)
        return np.where(np.isnan(u), np.nan, np.where(dropped, 0.0, kept))[()]

    def sample(self, shape: int | tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw independent coefficients of the exact law, one uniform number each.

        Examples
        --------
        >>> Dilution(0.5, 1).sample(4, np.random.default_rng(0)).round(3)
        array([2.094, 0.   , 0.   , 0.   ])
        """
        instance("rng", rng, np.random.Generator, "a numpy.random.Generator")
        return self.ppf(rng.random(checked_shape("shape", shape)))
