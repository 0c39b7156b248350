"""Bad arguments of every public function and layer: one form of error, or they work."""

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

MODEL = keras.Sequential([keras.Input((4,)), layers.Dropout(0.5)])
MODEL.compile(run_eagerly=True)


def entered(*args, **kwargs):
    with masks_on(*args, **kwargs):
        pass


def changed(name):
    def change(value):
        setattr(QSD(0.5, 1.0), name, value)

    change.__name__ = f"layer.{name}"
    return change


LAYER = {"rate": 0.5, "alpha": 1.0, "seed": 1, "vary": "pq", "unit_mean": False}
LAYER |= {"p_broadcast_dims": ()}
SPATIAL = LAYER | {"data_format": "channels_last"}
CHOICE = {"include": None, "exclude": None, "strict": True}
# Every public function, with arguments that work; each is replaced by junk in turn.
CALLS = [
    (QSD, LAYER | {"broadcast_dims": ()}),
    (QSD, LAYER | {"noise_shape": None}),
    *((each, SPATIAL) for each in (SpatialQSD1D, SpatialQSD2D, SpatialQSD3D)),
    (convert, {"model": MODEL, "alpha": 1.0} | CHOICE),
    (revert, {"model": MODEL}),
    (sites, {"model": MODEL}),
    (entered, {"model": MODEL, "native": True}),
    (predict_mc, {"model": MODEL, "x": np.ones((2, 4)), "n": 2, "native": True,
                  "output": None, "samples": False}),
    *((changed(name), {"value": good}) for name, good in
      [("rate", 0.5), ("alpha", 1.0), ("dilution", quantal.Dilution(0.5, 1.0))]),
]  # fmt: skip
# Functions of the caller's, which may raise and return whatever they like.
FUNCTIONS = {"alpha", "include", "exclude", "output"}


def cases():
    for function, good in CALLS:
        for name in good:
            if (function, name) != (predict_mc, "x"):  # which Keras checks
                yield pytest.param(function, good, name, id=f"{function.__name__}-{name}")


@pytest.mark.filterwarnings("ignore::quantal.sites.UnreachedWarning")
@pytest.mark.parametrize(("function", "good", "name"), list(cases()))
def test_one_form_for_every_hostile_argument(function, good, name, hostile, complaint):
    said = []
    for wrong in hostile:
        if name in FUNCTIONS and callable(wrong):
            continue
        told = complaint(function, **good | {name: wrong})
        # A choice of sites that leaves none is no bad argument.
        if told and not told.startswith("ValueError: no dropout to swap"):
            said.append((type(wrong), told))
        revert(MODEL)
    assert not said, said


def test_something_is_refused_by_each():
    for function, good in CALLS:
        with pytest.raises((TypeError, ValueError), match=r"^\w+: expected .* Received: "):
            function(**good | {next(iter(good)): object()})


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_what_is_not_diluted_may_be_anything(dtype):
    x = ops.cast(ops.ones((2, 4)), dtype)
    for layer in (QSD(0.5, 1.0), layers.Dropout(0.5)):
        assert layer(x, training=False) is x
    assert QSD(0, 1.0)(x, training=True) is x
    with pytest.raises(TypeError, match="x: expected a floating-point array"):
        QSD(0.5, 1.0)(x, training=True)
