"""Properties that hold for all parameters, shapes, axes and dtypes."""

import math

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import quantal
from quantal import Dilution, reference
from quantal._granularity import coefficient_shapes
from quantal.keys import CELLS, LEVELS
from quantal.table import shared_table, table

rates = st.one_of(st.floats(0, 1), st.floats(1e-4, 0.999))
alphas = st.one_of(st.floats(1e-3, 1e6), st.floats(5e-324, math.inf))
laws = st.builds(
    Dilution, rates, alphas, vary=st.sampled_from(["pq", "p", "q"]), unit_mean=st.booleans()
)
dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.longdouble])
shapes = npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)
slow = settings(deadline=None, max_examples=50, derandomize=True)  # each makes new tables
quick = settings(deadline=None, max_examples=300, derandomize=True)


def some_axes(data, ndim):
    axes = data.draw(st.lists(st.integers(0, max(ndim - 1, 0)), unique=True, max_size=ndim))
    return tuple(axis - ndim * data.draw(st.booleans()) for axis in axes)


@quick
@given(laws)
@example(Dilution(5e-324, 5e-324))
@example(Dilution(1 - 2.0**-53, 5e-324, vary="q"))
@example(Dilution(1 - 2.0**-53, 1e300, unit_mean=True))
def test_every_law_is_a_law(law):
    assert law.mean >= 0
    assert 0 <= law.var < math.inf
    assert 0 <= law.std < math.inf
    u = np.linspace(0, 1, 101)
    c = law.ppf(u)
    assert np.all((c >= 0) & (c <= law.ceiling))
    assert np.all(np.diff(c) >= 0)
    assert np.all((law.cdf(c) >= 0) & (law.cdf(c) <= 1))
    if 1e-3 <= law.alpha <= 1e6:  # beyond, the special functions may lose some digits
        assert np.all(np.diff(law.cdf(c)) >= 0)
    assert law.cdf(0) >= law.rate
    assert law.cdf(law.ceiling) == 1


@slow
@given(laws)
@example(Dilution(5e-324, 5e-324))
@example(Dilution(1 - 2.0**-53, 1.0, vary="q"))
@example(Dilution(1 - 2.0**-53, 1e300))
@example(Dilution(1e-300, 1e300))
def test_every_law_has_a_table(law):
    assume(0 < law.rate < 1)
    made = table(law)
    assert np.all(np.isfinite(made.values))
    assert np.all(np.diff(made.values) >= 0)
    assert made.values.min() >= 0
    assert made.values.max() <= np.float32(law.ceiling)
    second = made.threshold / LEVELS
    dropped = np.mean(made.values == 0, axis=1) @ [1 - second, second]
    assert dropped == pytest.approx(law.rate, rel=0, abs=1e-12)
    shared = shared_table(law)
    assert np.all(np.isfinite(shared.values))
    assert np.all((shared.keep_below >= 0) & (shared.keep_below <= LEVELS))
    assert 1 - shared.keep_below.mean() / LEVELS == pytest.approx(law.rate, rel=0, abs=1e-12)


@slow
@given(laws, shapes, dtypes, st.integers(0, 2**64 - 1), st.data())
def test_dilute_keeps_shape_and_dtype_and_multiplies(law, shape, dtype, seed, data):
    axes = some_axes(data, len(shape))
    p_axes = some_axes(data, len(shape))
    keywords = {
        "rng": quantal.key(seed),
        "vary": law.vary,
        "unit_mean": law.unit_mean,
        "broadcast_dims": axes,
        "p_broadcast_dims": p_axes,
    }
    x = np.asarray(np.random.default_rng(seed).standard_normal(shape)).astype(dtype)
    with np.errstate(over="ignore"):  # float16 may overflow: c reaches 1/p̄²
        y = quantal.dilute(x, law.rate, law.alpha, **keywords)
        again = quantal.dilute(x, law.rate, law.alpha, **keywords)
    assert type(y) is type(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert not np.any(np.isnan(y))
    np.testing.assert_array_equal(y, again)
    c = quantal.dilute(np.ones(shape, np.float32), law.rate, law.alpha, **keywords)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, (x * c).astype(dtype))
    # The same coefficient wherever an axis is shared.
    mask_shape, _ = coefficient_shapes(shape, axes, p_axes)
    if c.size:
        corner = tuple(slice(0, 1) if m == 1 else slice(None) for m in mask_shape)
        np.testing.assert_array_equal(c, np.broadcast_to(c[corner], shape))
    if law.rate == 0:
        assert y is x


@slow
@given(laws, shapes, st.integers(0, 2**32 - 1), st.data())
def test_shared_probabilities_give_equal_sizes(law, shape, seed, data):
    p_axes = some_axes(data, len(shape))
    assume(p_axes)
    assume(0 < law.rate < 1)
    drawn = reference.draw(law, shape, np.random.default_rng(seed), p_broadcast_dims=p_axes)
    table_c = quantal.dilute(
        np.ones(shape, np.float64), law.rate, law.alpha, rng=quantal.key(seed),
        vary=law.vary, unit_mean=law.unit_mean, p_broadcast_dims=p_axes,
    )  # fmt: skip
    axes = tuple(axis % len(shape) for axis in p_axes)
    for c in (np.broadcast_to(drawn.c, shape), table_c):
        if c.size:
            size = np.broadcast_to(c.max(axis=axes, keepdims=True), shape)
            np.testing.assert_array_equal(c, np.where(c > 0, size, 0))


@quick
@given(st.integers(0, 2**64 - 1), shapes)
def test_indices_are_rows_of_blocks(seed, shape):
    drawn = quantal.key(seed).indices(shape)
    assert drawn.shape == shape
    assert drawn.dtype == np.uint16
    if shape and drawn.size:
        # A row's numbers do not depend on how long the array is in front of it.
        first = quantal.key(seed).indices((1, *shape[1:]) if len(shape) > 1 else shape)
        np.testing.assert_array_equal(first[0], drawn[0])


@quick
@given(st.integers(0, 5), st.data())
def test_axes_count_from_either_end(ndim, data):
    shape = tuple(range(2, 2 + ndim))
    axes = some_axes(data, ndim)
    positive = {axis % ndim for axis in axes} if ndim else set()
    mask_shape, p_shape = coefficient_shapes(shape, axes)
    assert p_shape is None
    assert mask_shape == tuple(1 if i in positive else n for i, n in enumerate(shape))
    assert coefficient_shapes(shape, (), axes)[1] == (mask_shape if axes else None)


def test_there_are_as_many_cells_as_indices():
    assert np.iinfo(np.uint16).max + 1 == CELLS
    assert np.iinfo(np.int32).max >= LEVELS
