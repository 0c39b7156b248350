"""``dilute`` on NumPy arrays, and the literal recipe with its granularities and gradient."""

import math

import numpy as np
import pytest
from scipy import stats

import quantal
from quantal import Dilution, reference, table
from quantal.numpy import coefficients

FALSE_ALARM = 1e-9


@pytest.mark.parametrize("rng", [np.random.default_rng(1), quantal.key(1)], ids=["native", "key"])
@pytest.mark.parametrize("p_shape", [None, (1, 1000)], ids=["own p", "shared p"])
@pytest.mark.parametrize("law", [Dilution(0.3, 3.0), Dilution(0.3, 3.0, vary="q")], ids=repr)
def test_coefficients_have_the_law(law, p_shape, rng):
    c = coefficients(law, (1000, 1000), p_shape, rng)
    assert c.dtype == np.float32
    if p_shape is None:
        dropped = int(np.count_nonzero(c == 0))
        assert stats.binomtest(dropped, c.size, law.rate).pvalue > FALSE_ALARM
        kept = stats.ks_1samp(c[c > 0], lambda v: (law.cdf(v) - law.rate) / law.retain)
        assert kept.statistic <= math.sqrt(math.log(2 / FALSE_ALARM) / (2 * c[c > 0].size)) + 2**-15
    else:
        # One size a column, of the right law; within a column the masks follow its probability.
        size = c.max(axis=0)
        np.testing.assert_array_equal(c, np.where(c > 0, size, 0))
        p = np.full(1000, law.retain) if law.vary == "q" else size / law.ceiling
        kept = np.count_nonzero(c, axis=0)
        chance = [
            stats.binomtest(int(k), 1000, q).pvalue for k, q in zip(kept, p, strict=True) if q
        ]
        assert min(chance) > FALSE_ALARM / len(chance)


@pytest.mark.parametrize("make", [np.random.default_rng, quantal.key], ids=["native", "key"])
def test_both_rows_of_a_table_are_used_in_proportion(make):
    # Half a cell is dropped: one row has no zero, the other one in 65,536, and each serves half of
    # the calls. A call of 2²¹ units has 32 zeros on average, or none at all.
    calls = 60
    some = [
        np.any(coefficients(Dilution(2.0**-17, 1.0), (2**21,), None, make(s)) == 0)
        for s in range(calls)
    ]
    assert stats.binomtest(sum(some), calls, 0.5).pvalue > FALSE_ALARM


def test_an_array_may_have_all_the_axes_that_numpy_allows():
    x, drawn = np.ones((2,) + (1,) * 61 + (3, 4)), np.ones((2, 3, 4))
    for options in ({}, {"broadcast_dims": 0}, {"p_broadcast_dims": -1}):
        many, few = (quantal.dilute(a, 0.5, 1.0, rng=quantal.key(0), **options) for a in (x, drawn))
        np.testing.assert_array_equal(many.reshape(few.shape), few)
    drawn = reference.draw(Dilution(0.5, 1.0), x.shape, np.random.default_rng(0))
    np.testing.assert_array_equal(reference.forward(x, drawn), drawn.c)


def test_a_key_is_used_by_the_published_plan():
    key, law = quantal.key(8), Dilution(0.3, 0.5)
    own, shared, call = key.split(3)
    made = table.table(law)
    row = made.values[int(call.level() < made.threshold)]
    np.testing.assert_array_equal(coefficients(law, (5, 6), None, key), row[own.indices((5, 6))])
    made = table.shared_table(law)
    cell = shared.indices((1, 6))
    expected = np.where(own.levels((5, 6)) < made.keep_below[cell], made.values[cell], 0)
    np.testing.assert_array_equal(coefficients(law, (5, 6), (1, 6), key), expected)


def test_the_two_sources_disagree_with_each_other_but_not_with_themselves():
    x = np.ones((50, 50), np.float32)
    for make in (lambda s: np.random.default_rng(s), quantal.key):
        one, same = (quantal.dilute(x, 0.5, 1.0, rng=make(3)) for _ in range(2))
        np.testing.assert_array_equal(one, same)
        assert np.any(one != quantal.dilute(x, 0.5, 1.0, rng=make(4)))
    rng = np.random.default_rng(0)
    assert np.any(quantal.dilute(x, 0.5, 1.0, rng=rng) != quantal.dilute(x, 0.5, 1.0, rng=rng))
    assert np.any(quantal.dilute(x, 0.5, 1.0) != quantal.dilute(x, 0.5, 1.0))


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the state that must not change
    for rng in (None, np.random.default_rng(0), quantal.key(0)):
        quantal.dilute(np.ones(100), 0.5, 1.0, rng=rng)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_identity_and_zeros():
    x = np.linspace(-1, 1, 7)
    assert quantal.dilute(x, 0.5, 1.0, training=False) is x
    assert quantal.dilute(x, 0, 1.0) is x
    zeros = quantal.dilute(np.array([np.inf, -1.0]), 1, 1.0)
    np.testing.assert_array_equal(zeros, 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.parametrize("alpha", [1e-3, 0.2, 1e6, math.inf])
def test_every_precision_is_kept_without_nan(alpha, dtype):
    x = np.full((100, 100), 0.7, dtype)
    y = quantal.dilute(x, 0.2, alpha, rng=quantal.key(0))
    assert y.dtype == dtype
    assert np.all(np.isfinite(y))
    c = quantal.dilute(np.ones((100, 100), np.float32), 0.2, alpha, rng=quantal.key(0))
    # The product is rounded once, after a multiplication in the wider of the two precisions.
    wide = np.result_type(dtype, np.float32)
    np.testing.assert_array_equal(y, (x.astype(wide) * c).astype(dtype))


def test_empty_scalar_and_strided_arrays():
    assert quantal.dilute(np.ones((0, 3)), 0.5, 1.0).shape == (0, 3)
    assert quantal.dilute(np.ones(()), 0.5, 1.0, rng=quantal.key(1)).shape == ()
    assert quantal.dilute(np.float32(1), 0.5, 1.0).dtype == np.float32
    x = np.arange(24.0).reshape(4, 6)
    for view in (x.T, x[::2, ::3], x[:, ::-1]):
        y = quantal.dilute(view, 0.5, 1.0, rng=quantal.key(2))
        np.testing.assert_array_equal(y, quantal.dilute(view.copy(), 0.5, 1.0, rng=quantal.key(2)))
    assert x[1, 1] == 7  # the input is never written to


@pytest.mark.parametrize(
    ("x", "keywords", "error", "words"),
    [
        (np.ones(3, int), {}, TypeError, "x: expected a floating-point array. Received: x=dtype('int64')"),
        (np.ones(3, complex), {}, TypeError, "x: expected a floating-point array"),
        (np.ones(3, bool), {"training": False}, TypeError, "x: expected a floating-point array"),
        (np.ones(3), {"rng": 0}, TypeError, "rng: expected a numpy.random.Generator, a quantal.key or None. Received: rng=0"),
        (np.ones(3), {"rng": np.random}, TypeError, "rng: expected a numpy.random.Generator"),
        (np.ones(3), {"broadcast_dims": 1}, ValueError, "broadcast_dims: expected distinct axes of an array with 1 dimensions. Received: broadcast_dims=1"),
        (np.ones((3, 3)), {"broadcast_dims": (0, -2)}, ValueError, "broadcast_dims: expected distinct axes"),
        (np.ones((3, 3)), {"p_broadcast_dims": (0, 5)}, ValueError, "p_broadcast_dims: expected distinct axes"),
        (np.ones((3, 3)), {"p_broadcast_dims": "0"}, TypeError, "p_broadcast_dims: expected distinct axes"),
        (np.ones((3, 3)), {"broadcast_dims": 0.0}, TypeError, "Received: broadcast_dims=0.0"),
        (np.ones(3), {"vary": "c"}, ValueError, "vary: expected 'pq', 'p' or 'q'"),
        ([1.0], {}, TypeError, "torch.Tensor (pip install 'quantal[torch]')"),
        (None, {}, TypeError, "Received: x=<class 'NoneType'>"),
    ],
)  # fmt: skip
def test_bad_input(x, keywords, error, words):
    with pytest.raises(error) as caught:
        quantal.dilute(x, 0.5, 1.0, **keywords)
    assert words in str(caught.value)


@pytest.mark.parametrize("vary", ["pq", "p", "q"])
@pytest.mark.parametrize("unit_mean", [False, True])
def test_reference_follows_the_recipe_step_by_step(unit_mean, vary):
    law = Dilution(0.3, 0.5, vary=vary, unit_mean=unit_mean)
    drawn = reference.draw(
        law, (400, 5, 30), np.random.default_rng(0), broadcast_dims=1, p_broadcast_dims=(0,)
    )
    assert drawn.p.shape == drawn.q.shape == (1, 1, 30)
    assert drawn.m.shape == drawn.c.shape == (400, 1, 30)
    sizes = np.full_like(drawn.p, 1 / 0.7) if vary == "p" else drawn.p / 0.7**2
    np.testing.assert_allclose(drawn.q, sizes, rtol=1e-15)
    scale = 1 / Dilution(0.3, 0.5, vary=vary).mean if unit_mean else 1
    np.testing.assert_allclose(drawn.c, drawn.q * drawn.m * scale, rtol=1e-15)
    probability = np.full(30, 0.7) if vary == "q" else drawn.p.ravel()
    kept = np.count_nonzero(drawn.m, axis=(0, 1))
    chance = [
        stats.binomtest(int(k), 400, p).pvalue for k, p in zip(kept, probability, strict=True)
    ]
    assert min(chance) > FALSE_ALARM / 30


def test_reference_limits():
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(reference.draw(Dilution(0, 0.2), (5,), rng).c, 1)
    np.testing.assert_array_equal(reference.draw(Dilution(1, 0.2, unit_mean=True), (5,), rng).c, 0)
    dropout = reference.draw(Dilution(0.25, math.inf), (1000,), rng).c
    np.testing.assert_allclose(np.unique(dropout), [0, 4 / 3], rtol=1e-15)


@pytest.mark.parametrize("vary", ["pq", "p", "q"])
def test_the_recipe_for_an_array_without_axes(vary):
    drawn = reference.draw(Dilution(0.5, 1.0, vary=vary), (), np.random.default_rng(1))
    assert [type(part) for part in drawn] == [np.ndarray] * 4
    assert reference.backward(np.array(2.0), drawn) == 2 * drawn.c


def test_gradient_of_the_reference_is_that_of_its_forward_pass():
    rng = np.random.default_rng(1)
    drawn = reference.draw(Dilution(0.4, 1.0), (6, 3), rng, broadcast_dims=1)
    x, upstream, h = rng.standard_normal((6, 3)), rng.standard_normal((6, 3)), 1e-6
    gradient = reference.backward(upstream, drawn)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        rise = reference.forward(x + step, drawn) - reference.forward(x - step, drawn)
        assert gradient[i] == pytest.approx(np.sum(rise * upstream) / (2 * h), rel=1e-6, abs=1e-9)
    half = reference.forward(x.astype(np.float16), drawn)
    assert half.dtype == np.float16


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_dropped_is_zero_even_if_it_was_not_finite(dtype):
    x = np.array([1.0, np.inf, -np.inf, np.nan] * 64, dtype)
    c = quantal.dilute(np.ones_like(x), 0.5, 1.0, rng=quantal.key(0))
    y = quantal.dilute(x, 0.5, 1.0, rng=quantal.key(0))
    assert np.all(y[c == 0] == 0)
    np.testing.assert_array_equal(y[c > 0], (x[c > 0] * c[c > 0]).astype(dtype))
    drawn = reference.draw(Dilution(0.5, 1.0), x.shape, np.random.default_rng(0))
    for product in (reference.forward, reference.backward):
        y = product(x, drawn)
        assert y.dtype == dtype
        assert np.all(y[drawn.c == 0] == 0)
        np.testing.assert_array_equal(np.isfinite(y[drawn.m]), np.isfinite(x[drawn.m]))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_a_matrix_is_diluted_unit_by_unit():
    x = np.arange(1.0, 10).reshape(3, 3)
    y = quantal.dilute(np.matrix(x), 0.5, 1.0, rng=quantal.key(0))
    assert type(y) is np.matrix
    np.testing.assert_array_equal(np.asarray(y), quantal.dilute(x, 0.5, 1.0, rng=quantal.key(0)))


@pytest.mark.parametrize("vary", ["pq", "p", "q"])
@pytest.mark.parametrize("alpha", [5e-324, 1e-3, 0.5, 1e300, 1e308])
@pytest.mark.parametrize("rate", [5e-324, 1e-300, 0.5, 1 - 2.0**-53])
def test_the_recipe_has_no_gaps(rate, alpha, vary):
    law = Dilution(rate, alpha, vary=vary)
    drawn = reference.draw(law, (100,), np.random.default_rng(0))
    for part in drawn:
        assert np.all(np.isfinite(part))
