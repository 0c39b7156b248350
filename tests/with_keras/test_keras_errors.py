"""Bad arguments of every public function and layer: one form of error, or they work."""

import re
from fractions import Fraction

import keras
import numpy as np
import pytest
from keras import layers, ops

import quantal
from quantal.keras import (
    QSD,
    SpatialQSD1D,
    SpatialQSD2D,
    SpatialQSD3D,
    convert,
    masks_on,
    predict_mc,
    revert,
    sites,
)

HOUSE = re.compile(r"^\w+: expected .+ Received: ", re.DOTALL)
X = ops.ones((2, 3))
MODEL = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5)])
MODEL.compile(run_eagerly=True)


def entered(*args, **kwargs):
    with masks_on(*args, **kwargs):
        pass


def changed(name):
    def change(value):
        layer = QSD(0.5, 1.0)
        setattr(layer, name, value)
        layer.call(X, training=True)
        layer.compute_output_shape(X.shape)
        layer.get_config()

    return change


def called(layer, shape):
    def make_and_call(call_training=True, **arguments):
        # By its own method: Keras would make tensors of arrays first, if it can.
        layer(**arguments).call(ops.ones(shape), training=call_training)

    return make_and_call


LAYER = {"rate": 0.5, "alpha": 1.0, "seed": 1, "vary": "pq", "unit_mean": False}
LAYER |= {"p_broadcast_dims": ()}
SPATIAL = LAYER | {"data_format": "channels_last"}
CHOICE = {"include": None, "exclude": None, "strict": True}
# Every public function, with arguments that work; each is replaced by hostile ones in turn.
CALLS = {
    "QSD": (called(QSD, (2, 3)), LAYER | {"broadcast_dims": (), "call_training": True}),
    "QSD of rate 0": (called(QSD, (2, 3)), LAYER | {"rate": 0.0, "call_training": True}),
    "QSD by noise_shape": (called(QSD, (2, 3)), LAYER | {"noise_shape": None}),
    "SpatialQSD1D": (called(SpatialQSD1D, (2, 3, 4)), SPATIAL),
    "SpatialQSD2D": (called(SpatialQSD2D, (2, 3, 4, 4)), SPATIAL),
    "SpatialQSD3D": (called(SpatialQSD3D, (2, 3, 2, 2, 2)), SPATIAL),
    **{
        f"layer.{name}": (changed(name), {"value": right})
        for name, right in {
            "rate": 0.5, "alpha": 1.0, "dilution": quantal.Dilution(0.5, 1.0), "seed": None,
            "noise_shape": None, "broadcast_dims": (), "p_broadcast_dims": (),
        }.items()
    },
    "layer(x)": (lambda x: QSD(0.5, 1.0).call(x, training=True), {"x": X}),
    "convert": (convert, {"model": MODEL, "alpha": 1.0} | CHOICE),
    "revert": (revert, {"model": MODEL}),
    "sites": (sites, {"model": MODEL}),
    "masks_on": (entered, {"model": MODEL, "native": True}),
    "predict_mc": (
        predict_mc,
        {
            "model": MODEL, "x": np.ones((2, 4)), "n": 2, "native": True, "output": None,
            "samples": False,
        },
    ),
}  # fmt: skip
PLACES = [(call, name) for call, (_, right) in CALLS.items() for name in right]
PLACES.remove(("predict_mc", "x"))  # which Keras checks
# Functions of the caller's, which may raise and return whatever they like.
FUNCTIONS = {"alpha", "include", "exclude", "output"}


@pytest.mark.filterwarnings("ignore::quantal.sites.UnreachedWarning")
@pytest.mark.parametrize(("call", "name"), PLACES)
def test_one_form_for_every_hostile_argument(call, name, hostile, complaint):
    function, right = CALLS[call]
    said = []
    extra = [X, ops.ones(()), ops.arange(2), layers.Dense]
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        extra += [tf.RaggedTensor.from_row_lengths([1.0, 2.0], [0, 2]), tf.sparse.from_dense(X)]
    if not call.startswith("layer."):  # Keras lets no layer be an attribute of one that is built
        extra += [layers.Dense(2), MODEL]
    for wrong in hostile + extra:
        if name in FUNCTIONS and callable(wrong):
            continue
        told = complaint(function, **right | {name: wrong})
        # A choice of sites that leaves none is no bad argument.
        if told and not told.startswith("ValueError: no dropout to swap"):
            said.append((type(wrong), told))
        revert(MODEL)
    assert not said, said


@pytest.mark.parametrize("call", CALLS)
def test_what_is_right_works_and_something_is_refused(call):
    function, right = CALLS[call]
    function(**right)
    revert(MODEL)
    with pytest.raises((TypeError, ValueError), match=HOUSE):
        function(**right | {next(iter(right)): object()})


@pytest.mark.parametrize("axes", [np.array([0, 1]), [0, 1], range(2), (np.int64(0), 1)])
@pytest.mark.parametrize("name", ["broadcast_dims", "p_broadcast_dims"])
def test_axes_in_any_sequence(name, axes):
    one, other = (
        ops.convert_to_numpy(QSD(0.5, 1.0, seed=quantal.key(0), **{name: each})(X, training=True))
        for each in (axes, (0, 1))
    )
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", [7, quantal.key(7)])
def test_a_seed_may_be_set_later(seed):
    late, early = QSD(0.5, 1.0, seed=1), QSD(0.5, 1.0, seed=seed)
    for layer in (late, early):
        layer(X, training=True)
    late.seed = early.seed = seed  # the same again is no restart
    drawn = [
        ops.convert_to_numpy(layer(ops.ones((9, 9)), training=True)) for layer in (late, early)
    ]
    assert not np.array_equal(*drawn)
    again = QSD(0.5, 1.0, seed=seed)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(again(ops.ones((9, 9)), training=True)), drawn[0]
    )
    assert QSD.from_config(late.get_config()).seed == seed


def test_a_generator_is_chosen_when_a_layer_is_made():
    generator = keras.random.SeedGenerator(1)
    layer = QSD(0.5, 1.0, seed=generator)
    layer.seed = generator
    for wrong in (keras.random.SeedGenerator(1), 1, quantal.key(1)):
        with pytest.raises(
            ValueError, match=r"seed: expected the seed generator .* Received: seed="
        ):
            layer.seed = wrong
    assert layer.seed is layer.seed_generator is generator


@pytest.mark.parametrize("half", [Fraction(1, 2), np.float32(0.5), np.array(0.5), ops.array(0.5)])
def test_numbers_of_every_kind_are_numbers(half):
    layer = QSD(half, half)
    assert layer.dilution == quantal.Dilution(0.5, 0.5)
    layer.rate = layer.alpha = half
    assert layer.dilution == quantal.Dilution(0.5, 0.5)


@pytest.mark.parametrize("yes", [True, np.True_, 1, np.array(True), ops.array(True)])
def test_training_is_whatever_says_yes_to_keras(yes):
    for layer in (layers.Dropout(0.5), QSD(0.5, 1.0)):
        assert np.any(ops.convert_to_numpy(layer(ops.ones((9, 9)), training=yes)) == 0)


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_what_is_not_diluted_may_be_anything(dtype):
    try:
        x = ops.cast(ops.ones((2, 4)), dtype)
    except ValueError:
        pytest.skip("this version of Keras does not know the type")
    for layer in (QSD(0.5, 1.0), layers.Dropout(0.5)):
        assert layer(x, training=False) is x
    assert QSD(0, 1.0)(x, training=True) is x
    with pytest.raises(TypeError, match="x: expected a floating-point array"):
        QSD(0.5, 1.0)(x, training=True)
