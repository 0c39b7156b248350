"""`masks_on` and `predict_mc` of Haiku: QSD draws, and all else is as in evaluation."""

import haiku as hk
import jax
import numpy as np
import pytest
from jax import numpy as jnp

from quantal.jax.haiku import convert, dropout, masks_on, predict_mc

KEY = jax.random.key(0)
X = jax.random.normal(KEY, (4, 8))


def network(x, is_training):
    x = hk.BatchNorm(True, True, 0.9)(hk.Linear(8)(x), is_training)
    return hk.dropout(hk.next_rng_key(), 0.5, x) if is_training else x


@pytest.fixture(scope="module")
def trained():
    """A model with statistics that are not those of X."""
    model = hk.transform_with_state(network)
    params, state = model.init(KEY, X, True)
    _, state = model.apply(params, state, KEY, 3 * X + 1, True)
    return model, params, state


def test_all_else_is_as_in_evaluation(trained):
    model, params, state = trained
    calm, _ = model.apply(params, state, KEY, X, False)
    converted = convert(model, 1.0, example=(X, True))
    with masks_on(converted) as drawing:
        drawn, after = drawing.apply(params, state, KEY, X, is_training=True)
    ratio = np.asarray(drawn / calm)
    assert 0 < (ratio == 0).mean() < 1
    assert len(np.unique(ratio.round(4))) > 8  # QSD's coefficients, of which dropout has two
    assert jax.tree.all(jax.tree.map(jnp.array_equal, state, after))
    # Outside of the block, the model trains as before, and evaluates as before.
    assert not jnp.array_equal(converted.apply(params, state, KEY, X, True)[0], drawn)
    np.testing.assert_array_equal(converted.apply(params, state, KEY, X, False)[0], calm)


def test_native_dropout_draws_only_if_it_is_asked_to(trained):
    model, params, state = trained
    calm, _ = model.apply(params, state, KEY, X, False)
    with (
        pytest.raises(ValueError, match="model: expected one with QSD"),
        masks_on(model) as drawing,
    ):
        quiet, _ = drawing.apply(params, state, KEY, X, True)
    np.testing.assert_array_equal(quiet, calm)
    with masks_on(model, native=True) as drawing:
        drawn, _ = drawing.apply(params, state, KEY, X, True)
    assert set(np.unique(np.asarray(drawn / calm).round(4))) == {0.0, 2.0}


def test_a_model_that_is_not_called_as_in_training_draws_nothing(trained):
    model, params, state = trained
    with pytest.raises(ValueError, match="model: expected one with QSD"):
        predict_mc(convert(model, 1.0), params, X, 3, key=KEY, state=state, is_training=False)
    with masks_on(convert(model, 1.0)):
        pass  # nothing ran


def test_predictions(trained):
    model, params, state = trained
    converted = convert(model, 1.0)
    calm, _ = model.apply(params, state, KEY, X, False)
    options = {"state": state, "is_training": True, "samples": True}
    found = predict_mc(converted, params, X, 200, key=KEY, **options)
    ratio = np.asarray(found.samples / calm)
    error = 4 * ratio.std() / ratio.size**0.5
    assert abs(ratio.mean() - 4 / 3) < error  # the mean gain at rate 0.5 and alpha 1
    np.testing.assert_allclose(found.mean, found.samples.mean(0), rtol=1e-4, atol=1e-5)
    again = predict_mc(converted, params, X, 200, key=KEY, **options)
    np.testing.assert_array_equal(again.samples, found.samples)


def test_a_model_without_state_in_compiled_code():
    def plain(x):
        return dropout(hk.next_rng_key(), 0.5, hk.Linear(3)(x), alpha=1.0)

    model = hk.transform(plain)
    params = model.init(KEY, X)
    with masks_on(model) as drawing:
        drawn = jax.jit(drawing.apply)(params, KEY, X)
    assert bool(jnp.any(drawn == 0))
    softmax = predict_mc(model, params, X, 5, key=KEY, output=jax.nn.softmax)
    np.testing.assert_allclose(softmax.mean.sum(-1), 1, rtol=1e-5)


def test_what_is_refused(trained):
    model, params, _ = trained
    multi = hk.multi_transform(lambda: (lambda x: x, (lambda x: x, lambda x: x)))
    with pytest.raises(
        TypeError, match=r"model: expected what hk\.transform or hk\.transform_with"
    ):
        predict_mc(multi, params, X, 3, key=KEY)
    with pytest.raises(TypeError, match=r"model: expected what hk\.transform or its kin"):
        masks_on(network).__enter__()
    with pytest.raises(TypeError, match="params: expected a mapping"):
        predict_mc(model, X, X, 3, key=KEY)
    with pytest.raises(ValueError, match="n: expected an integer"):
        predict_mc(model, params, X, 1, key=KEY)
