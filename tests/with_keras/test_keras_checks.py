"""What Keras's own tests ask of its dropout layers, asked of QSD with ``alpha=inf``.

After keras/src/layers/regularization/dropout_test.py and spatial_dropout_test.py of Keras 3.15;
the wording of messages is quantal's own and is tested elsewhere.
"""

import inspect
import math
import warnings

import keras
import numpy as np
import pytest

with warnings.catch_warnings():
    # Keras's test tools import what they do not need here.
    warnings.simplefilter("ignore")
    from keras.src.testing import TestCase

from quantal.keras import QSD, SpatialQSD1D, SpatialQSD2D, SpatialQSD3D

pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning:torch"),
    pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf"),
]

LAYERS = [
    (QSD, {}, (2, 3)),
    (QSD, {"noise_shape": (None, 1)}, (2, 3)),
    (QSD, {"p_broadcast_dims": (0,)}, (2, 3)),
    (SpatialQSD1D, {}, (2, 3, 4)),
    (SpatialQSD2D, {}, (2, 3, 4, 5)),
    (SpatialQSD2D, {"data_format": "channels_first"}, (2, 3, 4, 5)),
    (SpatialQSD3D, {}, (2, 3, 4, 4, 5)),
    (SpatialQSD3D, {"data_format": "channels_first"}, (2, 3, 4, 4, 5)),
]


# Keras 3.15's run_layer_test fits a model without weights on a generator, and warns of both.
@pytest.mark.filterwarnings("ignore:`shuffle=True` was passed:UserWarning:keras")
@pytest.mark.filterwarnings("ignore:The model does not have any trainable:UserWarning:keras")
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("alpha", [0.2, math.inf])
@pytest.mark.parametrize(("layer", "arguments", "shape"), LAYERS)
def test_basics(layer, arguments, shape, alpha, training):
    case = TestCase()
    case.setUp()
    known = inspect.signature(case.run_layer_test).parameters
    built = "assert_built_after_instantiation"  # which Keras 3.5 does not look at
    case.run_layer_test(
        layer,
        init_kwargs={"rate": 0.5, "alpha": alpha, **arguments},
        input_shape=shape,
        call_kwargs={"training": training},
        expected_output_shape=shape,
        expected_num_trainable_weights=0,
        expected_num_non_trainable_weights=0,
        expected_num_seed_generators=1,
        expected_num_losses=0,
        supports_masking=True,
        **({built: True} if built in known else {}),
    )


def test_rescaling():
    outputs = QSD(0.5, math.inf, seed=1337)(np.ones((20, 500)), training=True)
    outputs = keras.ops.convert_to_numpy(outputs)
    # 10,000 coefficients of standard deviation 1: 5.33 standard errors for 1e-7.
    assert abs(np.mean(outputs) - 1) < 5.33 / 100
    np.testing.assert_array_equal(np.unique(outputs), [0, 2])


@pytest.mark.parametrize("noise_shape", [(None, 1, None), (20, 1, 10), [20, 1, 10]])
def test_partial_noise_shape(noise_shape):
    layer = QSD(0.5, math.inf, noise_shape=noise_shape)
    assert layer.noise_shape == tuple(noise_shape)
    outputs = keras.ops.convert_to_numpy(layer(np.ones((20, 5, 10)), training=True))
    np.testing.assert_array_equal(outputs[:, 0, :], outputs[:, 1, :])
    assert len(np.unique(outputs[:, 0, :])) == 2


@pytest.mark.parametrize(
    ("layer", "shape", "arguments", "one", "other"),
    [
        (SpatialQSD1D, (10, 3, 10), {}, np.s_[:, 0, :], np.s_[:, 1, :]),
        (SpatialQSD2D, (10, 3, 3, 10), {}, np.s_[:, 0, 0, :], np.s_[:, 1, 1, :]),
        (SpatialQSD2D, (10, 10, 3, 3), "channels_first", np.s_[..., 0, 0], np.s_[..., 1, 1]),
        (SpatialQSD3D, (10, 3, 3, 3, 10), {}, np.s_[:, 0, 0, 0, :], np.s_[:, 1, 1, 1, :]),
        (
            SpatialQSD3D,
            (10, 10, 3, 3, 3),
            "channels_first",
            np.s_[..., 0, 0, 0],
            np.s_[..., 1, 1, 1],
        ),
    ],
)
def test_spatial_correctness(layer, shape, arguments, one, other):
    arguments = {"data_format": arguments} if arguments else {}
    outputs = layer(0.5, math.inf, **arguments)(np.ones(shape), training=True)
    outputs = keras.ops.convert_to_numpy(outputs)
    np.testing.assert_array_equal(outputs[one], outputs[other])
    assert len(np.unique(outputs)) == 2


def test_invalid():
    for rate in (-0.5, 1.5):
        with pytest.raises(ValueError, match="rate"):
            QSD(rate, math.inf)
    for noise_shape in ("Invalid", (20, 1.5, 10), (20, -1, 10), (20, 0, 10)):
        with pytest.raises(ValueError, match="noise_shape"):
            QSD(0.5, math.inf, noise_shape=noise_shape)
