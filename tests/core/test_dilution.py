"""The law against numerical quadrature, its own identities, and bad input."""

import dataclasses
import math
import pickle

import mpmath
import numpy as np
import pytest

from quantal import Dilution

ALPHAS = (1e-3, 0.05, 0.2, 1.0, 5.0, 100.0, 1e4, 1e6)
RATES = (1e-4, 0.1, 0.2, 0.5, 0.6, 0.95, 0.999)


def expectation(alpha, rate, power):
    """E[pᵏ] for p ~ Beta(α, β) by quadrature over the log-odds of p, in 20 digits."""
    with mpmath.workdps(20):
        a, d = mpmath.mpf(alpha), mpmath.mpf(rate)
        b = a * d / (1 - d)
        left, right = a + power, b  # the integrand falls as exp(left·x) and exp(−right·x)
        centre = mpmath.log(left / right)
        width = mpmath.sqrt(1 / left + 1 / right)
        steps = [mpmath.mpf(s) for s in (0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 12, 16, 24, 40)]
        points = [centre - s * (width + 2 / left) for s in reversed(steps)]
        points += [centre] + [centre + s * (width + 2 / right) for s in steps]
        points += [p for p in (-30, -5, 0, 5, 30) if points[0] < p < points[-1]]

        def integrand(x):
            log_p, log_w = -mpmath.log1p(mpmath.exp(-x)), -mpmath.log1p(mpmath.exp(x))
            return mpmath.exp(left * log_p + right * log_w)

        log_beta = mpmath.loggamma(a) + mpmath.loggamma(b) - mpmath.loggamma(a + b)
        return mpmath.quad(integrand, sorted(points)) / mpmath.exp(log_beta)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("rate", RATES)
def test_moments_equal_quadrature_of_the_recipe(rate, alpha):
    kept = 1 - mpmath.mpf(rate)
    for k in (1, 2):
        # The mask is kept with probability p, and the size is p/p̄².
        exact = expectation(alpha, rate, k + 1) / kept ** (2 * k)
        assert Dilution(rate, alpha).moment(k) == pytest.approx(float(exact), rel=1e-10)
        # The mask is kept with probability p̄, whatever p is.
        exact_q = kept * expectation(alpha, rate, k) / kept ** (2 * k)
        assert Dilution(rate, alpha, vary="q").moment(k) == pytest.approx(float(exact_q), rel=1e-10)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("rate", RATES)
def test_mean_is_the_papers_closed_form(rate, alpha):
    law = Dilution(rate, alpha)
    beta = alpha * rate / (1 - rate)
    assert law.mean == pytest.approx(1 + beta / (alpha * (alpha + beta + 1)), rel=1e-12)
    assert law.mean == pytest.approx(1 + rate / (alpha + 1 - rate), rel=1e-12)


@pytest.mark.parametrize("vary", ["pq", "p", "q"])
@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("alpha", [*ALPHAS, math.inf])
@pytest.mark.parametrize("rate", RATES)
def test_variance_is_the_second_moment_less_the_squared_mean(rate, alpha, vary, unit_mean):
    law = Dilution(rate, alpha, vary=vary, unit_mean=unit_mean)
    # The difference cancels, so it is taken in exact arithmetic on the moments' own formula.
    second, first = law.moment(2), law.mean
    lost = 4 * np.finfo(float).eps * second
    assert law.var == pytest.approx(second - first**2, rel=1e-12, abs=lost)
    assert law.std == math.sqrt(law.var)
    if unit_mean:
        assert law.mean == pytest.approx(1, rel=1e-15)
        plain = Dilution(rate, alpha, vary=vary)
        assert law.std / law.mean == pytest.approx(plain.std / plain.mean, rel=1e-12)


def test_variants_without_spread_are_standard_dropout():
    for law in (Dilution(0.3, math.inf), Dilution(0.3, 0.2, vary="p"), Dilution(0.3, 1e18)):
        assert law.mean == 1
        assert law.var == pytest.approx(0.3 / 0.7, rel=1e-15)
    law = Dilution(0.25, math.inf)
    np.testing.assert_array_equal(law.cdf([-1, 0, 1.3, 4 / 3, 2]), [0, 0.25, 0.25, 1, 1])
    np.testing.assert_array_equal(law.ppf([0, 0.2, 0.25, 1]), [0, 0, 4 / 3, 4 / 3])
    np.testing.assert_array_equal(law.pdf([0, 1, 4 / 3]), [np.inf, 0, np.inf])


@pytest.mark.parametrize("vary", ["pq", "q"])
@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0, 5.0, 100.0])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.95])
def test_cdf_is_the_incomplete_beta_function_of_mpmath(rate, alpha, vary):
    law = Dilution(rate, alpha, vary=vary)
    a = alpha + (vary == "pq")
    for p in (1e-6, 0.1, 0.5, 0.9, 1 - 1e-6):
        kept = mpmath.betainc(a, law.beta, 0, p, regularized=True)
        assert law.cdf(p * law.ceiling) == pytest.approx(
            float(rate + (1 - rate) * kept), rel=1e-12, abs=1e-12
        )


@pytest.mark.parametrize("vary", ["pq", "q"])
@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0, 100.0])
def test_ppf_undoes_cdf_and_pdf_is_its_slope(alpha, unit_mean, vary):
    law = Dilution(0.3, alpha, vary=vary, unit_mean=unit_mean)
    # At α 0.2 the upper quantiles are closer to the ceiling than a float64 can tell.
    u = np.linspace(0.301, 0.97 if alpha >= 1 else 0.4, 50)
    np.testing.assert_allclose(law.cdf(law.ppf(u)), u, rtol=1e-12)
    c = law.ppf(u[5:-5:5])
    h = 1e-5 * np.minimum(c, law.ceiling - c)
    np.testing.assert_allclose(law.pdf(c), (law.cdf(c + h) - law.cdf(c - h)) / (2 * h), rtol=1e-4)


def test_cdf_and_ppf_at_the_atom_and_the_ends():
    law = Dilution(0.2, 0.2)
    assert law.cdf(-1e-300) == 0
    assert law.cdf(0) == 0.2
    assert law.cdf(law.ceiling) == 1
    assert law.cdf(np.inf) == 1
    assert law.ppf(0) == 0
    assert law.ppf(np.nextafter(0.2, 0)) == 0
    assert law.ppf(1) == law.ceiling == 1 / law.retain**2
    assert np.isnan(law.cdf(np.nan))
    assert np.isnan(law.ppf(np.nan))
    assert law.pdf(0) == np.inf
    assert Dilution(0.1, 1e-3, vary="q").pdf(5e-324) == np.inf  # larger than all floats
    assert law.pdf(-1) == law.pdf(2 * law.ceiling) == 0


@pytest.mark.parametrize("vary", ["pq", "p", "q"])
@pytest.mark.parametrize("unit_mean", [False, True])
@pytest.mark.parametrize("alpha", [1e-3, 0.2, 1e6, math.inf])
def test_limits_of_the_rate(alpha, unit_mean, vary):
    identity = Dilution(0, alpha, vary=vary, unit_mean=unit_mean)
    assert (identity.mean, identity.var, identity.moment(3), identity.beta) == (1, 0, 1, 0)
    np.testing.assert_array_equal(identity.ppf([0, 0.5, 1]), 1)
    np.testing.assert_array_equal(identity.cdf([0, 0.99, 1]), [0, 0, 1])
    zeros = Dilution(1, alpha, vary=vary, unit_mean=unit_mean)
    assert (zeros.mean, zeros.var, zeros.moment(0), zeros.ceiling) == (0, 0, 1, 0)
    np.testing.assert_array_equal(zeros.ppf([0, 0.5, 1]), 0)
    np.testing.assert_array_equal(zeros.cdf([-1, 0, 1]), [0, 1, 1])


def test_sample_is_the_quantile_function_of_uniform_numbers():
    law = Dilution(0.4, 0.7)
    drawn = law.sample((3, 4), np.random.default_rng(5))
    np.testing.assert_array_equal(drawn, law.ppf(np.random.default_rng(5).random((3, 4))))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("share", [0.0, 1e-6, 0.3, 0.9, 0.999])
def test_with_mean_gain(rate, share):
    gain = 1 + share * (1 / (1 - rate) - 1)
    law = Dilution.with_mean_gain(rate, gain)
    assert law.rate == rate
    assert law.mean == pytest.approx(gain, rel=1e-9)


def test_is_frozen_hashable_comparable_and_picklable():
    law = Dilution(np.float32(0.5), 1)
    assert law == Dilution(0.5, 1.0)
    assert hash(law) == hash(Dilution(0.5, 1.0))
    assert law != Dilution(0.5, 1.0, vary="q")
    assert law != Dilution(0.5, 1.0, unit_mean=True)
    assert pickle.loads(pickle.dumps(law)) == law
    assert dataclasses.replace(law, alpha=2) == Dilution(0.5, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        law.rate = 0.1


def test_repr_is_short_and_evaluates():
    for law in (Dilution(0.2, 5), Dilution(0.1, math.inf, vary="q", unit_mean=True)):
        assert eval(repr(law), {"Dilution": Dilution, "inf": math.inf}) == law
    assert repr(Dilution(0.2, 5)) == "Dilution(rate=0.2, alpha=5.0)"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"rate": -0.1, "alpha": 1}, ValueError, "rate: expected a number in [0, 1]. Received: rate=-0.1"),
        ({"rate": 1.5, "alpha": 1}, ValueError, "rate: expected a number in [0, 1]"),
        ({"rate": math.nan, "alpha": 1}, ValueError, "rate: expected a number in [0, 1]. Received: rate=nan"),
        ({"rate": "0.1", "alpha": 1}, TypeError, "rate: expected a number in [0, 1]. Received: rate='0.1'"),
        ({"rate": True, "alpha": 1}, TypeError, "Received: rate=True"),
        ({"rate": None, "alpha": 1}, TypeError, "Received: rate=None"),
        ({"rate": 0.1, "alpha": 0}, ValueError, "alpha: expected a number above 0, or inf"),
        ({"rate": 0.1, "alpha": -1.0}, ValueError, "Received: alpha=-1.0"),
        ({"rate": 0.1, "alpha": math.nan}, ValueError, "Received: alpha=nan"),
        ({"rate": 0.1, "alpha": -math.inf}, ValueError, "Received: alpha=-inf"),
        ({"rate": 0.1, "alpha": [1.0]}, TypeError, "Received: alpha=[1.0]"),
        ({"rate": 0.1}, TypeError, "Dilution.with_mean_gain(rate, gain).alpha"),
        ({"rate": 0.1, "alpha": 1, "vary": "qp"}, ValueError, "vary: expected 'pq', 'p' or 'q'. Received: vary='qp'"),
        ({"rate": 0.1, "alpha": 1, "unit_mean": 1}, TypeError, "unit_mean: expected True or False. Received: unit_mean=1"),
    ],
)  # fmt: skip
def test_bad_parameters_get_one_clear_error(arguments, error, words):
    with pytest.raises(error) as caught:
        Dilution(**arguments)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda law: law.moment(-1), ValueError, "k: expected an integer of at least 0"),
        (lambda law: law.moment(1.5), TypeError, "Received: k=1.5"),
        (lambda law: law.ppf(1.1), ValueError, "u: expected probabilities in [0, 1]"),
        (lambda law: law.cdf("a"), TypeError, "c: expected numbers. Received: c='a'"),
        (lambda law: law.sample(3, 0), TypeError, "rng: expected a numpy.random.Generator"),
        (lambda law: law.with_mean_gain(0.5, 2), ValueError, "gain: expected a number in [1, 2)"),
        (lambda law: law.with_mean_gain(0.5, 0.9), ValueError, "Received: gain=0.9"),
        (lambda law: law.with_mean_gain(1, 1.5), ValueError, "rate: expected a number in [0, 1)"),
    ],
)
def test_bad_calls_get_one_clear_error(call, error, words):
    with pytest.raises(error) as caught:
        call(Dilution(0.2, 0.2))
    assert words in str(caught.value)
