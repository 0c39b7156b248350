"""Bad arguments of every public function and layer: one form of error, or they work."""

import math
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

HOUSE = re.compile(r"^\w+: expected .+\. Received: ", re.DOTALL)
JUNK = [
    None, True, "x", b"x", 1j, -1, 7, 1.5, math.nan, -math.inf, 10**400, 2**64, Fraction(1, 3),
    (), [], {}, {"a": 1}, (1.5,), ("a", None), [[1]], range(3), object(),
    np.int64(1), np.float32(0.5), np.array(1), np.array([0, 1]), np.array(["a"]), np.ones((2, 3)),
    quantal.key(0), quantal.Dilution(0.5, 1.0), slice(1), ...,
]  # fmt: skip
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


def cases():
    for function, good in CALLS:
        for name in good:
            if (function, name) != (predict_mc, "x"):  # which Keras checks
                yield pytest.param(function, good, name, id=f"{function.__name__}-{name}")


def fault(function, arguments):
    """Return what is wrong with the error of a call; None if nothing is, or if there is none."""
    try:
        function(**arguments)
    except (TypeError, ValueError) as error:
        # A choice of sites that leaves none is no bad argument.
        fine = HOUSE.match(str(error)) or str(error).startswith("no dropout to swap")
        return None if fine else f"{type(error).__name__}: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.filterwarnings("ignore::quantal.sites.UnreachedWarning")
@pytest.mark.parametrize(("function", "good", "name"), list(cases()))
def test_bad_arguments(function, good, name):
    wrong = []
    for junk in JUNK:
        if said := fault(function, good | {name: junk}):
            wrong.append((junk, said))
        revert(MODEL)
    assert wrong == []


def test_it_can_fail():
    """Something of every function is refused: the loop above has not passed all."""
    for function, good in CALLS:
        name = next(iter(good))
        with pytest.raises((TypeError, ValueError), match=HOUSE):
            function(**good | {name: object()})
    assert fault(lambda x: x + 1, {"x": "a"})
    assert fault(lambda x: {}[x], {"x": "a"})


@pytest.mark.parametrize("dtype", ["int32", "bool", "complex64"])
def test_what_is_not_diluted_may_be_anything(dtype):
    x = ops.cast(ops.ones((2, 4)), dtype)
    for layer in (QSD(0.5, 1.0), layers.Dropout(0.5)):
        assert layer(x, training=False) is x
    assert QSD(0, 1.0)(x, training=True) is x
    with pytest.raises(TypeError, match="x: expected a floating-point array"):
        QSD(0.5, 1.0)(x, training=True)
