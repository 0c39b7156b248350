"""Bad arguments of `quantal.tensorflow.dilute`, drawing or not: one form of error, or they work."""

import keras
import numpy as np
import pytest

import quantal

if keras.backend.backend() != "tensorflow":
    pytest.skip("about TensorFlow itself: needs KERAS_BACKEND=tensorflow", allow_module_level=True)

import tensorflow as tf

from quantal.tensorflow import dilute

X = tf.ones((2, 3))
RIGHT = {
    "x": X, "rate": 0.5, "alpha": 1.0, "rng": quantal.key(0), "training": True, "vary": "pq",
    "unit_mean": False, "broadcast_dims": (), "p_broadcast_dims": (),
}  # fmt: skip
CALLS = {
    "drawing": RIGHT,
    "in evaluation": RIGHT | {"training": False},
    "at rate 0": RIGHT | {"rate": 0.0},
    "at rate 1": RIGHT | {"rate": 1.0},
}
TENSORS = [
    X, tf.constant(0.5), tf.constant(2), tf.constant(True), tf.constant("x"), tf.constant([0, 1]),
    tf.constant([0, 5]), tf.Variable(0.5), tf.float32, tf.random.Generator.from_seed(1),
    tf.RaggedTensor.from_row_lengths([1.0, 2.0], [0, 2]), tf.sparse.from_dense(np.eye(2)),
]  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("call", CALLS)
def test_one_form_for_every_hostile_argument(call, name, hostile, complaint):
    right = CALLS[call]
    told = [(type(w), complaint(dilute, **right | {name: w})) for w in hostile + TENSORS]
    said = [each for each in told if each[1]]
    assert not said, said


@pytest.mark.parametrize("name", [name for name in RIGHT if name != "x"])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_refused_is_refused_in_both_modes(call, name):
    dilute(**CALLS[call])
    with pytest.raises((TypeError, ValueError), match=rf"^{name}: expected .* Received: "):
        dilute(**CALLS[call] | {name: "x"})


@pytest.mark.parametrize("call", ["in evaluation", "at rate 0"])
def test_what_is_not_diluted_may_be_anything(call):
    for x in ("x", tf.constant(1), None):
        assert dilute(**CALLS[call] | {"x": x}) is x


@pytest.mark.parametrize("axes", [np.array([0, 1]), [0, 1], range(2), (np.int64(0), 1)])
@pytest.mark.parametrize("name", ["broadcast_dims", "p_broadcast_dims"])
def test_axes_in_any_sequence(name, axes):
    one, other = (dilute(**RIGHT | {name: each}) for each in (axes, (0, 1)))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("half", [np.float32(0.5), np.array(0.5), tf.constant(0.5)])
def test_numbers_of_every_kind_are_numbers(half):
    one, other = (dilute(**RIGHT | {"rate": n, "alpha": n}) for n in (half, 0.5))
    np.testing.assert_array_equal(one, other)
