"""The layers on one backend: Keras's own checks, seeds, saving, precision, granularity."""

import copy
import json
import math
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops
from scipy import stats

import quantal
import quantal.numpy
from quantal.keras import QSD, SpatialQSD1D, SpatialQSD2D, SpatialQSD3D, convert

pytestmark = [
    # torch 2.13's compiler uses what torch deprecates, and looks at the .grad of every tensor.
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning:torch"),
    pytest.mark.filterwarnings(r"ignore:The \.grad attribute of a Tensor that is not a leaf"),
]

BACKEND = keras.backend.backend()
KEY = quantal.key(11)


def numpy(x):
    return ops.convert_to_numpy(x)


def portable(n, shape, rate=0.5, alpha=1.0, **granularity):
    """Return the coefficients of call n of a layer with KEY."""
    x = np.ones(shape, np.float32)
    return quantal.numpy.dilute(x, rate, alpha, rng=KEY.fold_in(n), **granularity)


def trainer(layer, shape, jit_compile, **compile_arguments):
    """Return a model whose loss is the mean output of the layer for an input of ones."""
    inputs = keras.Input(shape, batch_size=None)
    # Weights that training leaves alone: there must be some.
    scaled = keras.layers.Dense(1, kernel_initializer="ones")(layer(inputs)[..., None])
    model = keras.Model(inputs, scaled[..., 0])
    model.compile(
        optimizer=keras.optimizers.SGD(0.0),
        loss=lambda y, prediction: ops.mean(prediction) + 0 * ops.mean(y),
        jit_compile=jit_compile,
        **compile_arguments,
    )
    return model


def losses(model, shape, steps):
    x = np.ones(shape, np.float32)
    found = []
    for _ in range(steps):
        found.append(float(model.train_on_batch(x, np.zeros(shape, np.float32))))
        model.reset_metrics()  # Keras 3.5 would return the mean of all steps
    return found


# --- seeds, compiled or not ----------------------------------------------------------------------


def test_a_key_counts_calls_as_in_numpy():
    layer = QSD(0.5, 1.0, seed=KEY)
    x = ops.ones((3, 5))
    for n in range(3):
        layer(x, training=False)  # does not count
        np.testing.assert_array_equal(numpy(layer(x, training=True)), portable(n, (3, 5)))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_key_under_fit(jit_compile):
    model = trainer(QSD(0.5, 1.0, seed=KEY), (6,), jit_compile)
    got = losses(model, (4, 6), 3)
    want = [portable(n, (4, 6)).mean(dtype=np.float64) for n in range(3)]
    np.testing.assert_allclose(got, want, rtol=1e-6)  # a float32 mean of 24 numbers


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("seed", [None, 1])
def test_masks_differ_per_step(jit_compile, seed):
    model = trainer(QSD(0.5, 1.0, seed=seed), (64,), jit_compile)
    assert len(set(losses(model, (32, 64), 5))) == 5


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_seed_repeats(jit_compile):
    runs = [
        losses(trainer(QSD(0.5, 1.0, seed=seed), (64,), jit_compile), (32, 64), 3)
        for seed in (5, 5, 6)
    ]
    assert runs[0] == runs[1]
    assert not set(runs[0]) & set(runs[2])  # nor does call 1 of one seed equal call 0 of the next


def test_layers_without_a_seed_differ():
    x = ops.ones((64, 64))
    one, two = (numpy(QSD(0.5, 1.0)(x, training=True)) for _ in range(2))
    assert np.any(one != two)


def test_a_seed_generator_can_be_shared():
    generator = keras.random.SeedGenerator(3)
    one, two = QSD(0.5, 1.0, seed=generator), QSD(0.5, 1.0, seed=generator)
    alone = QSD(0.5, 1.0, seed=3)
    x = ops.ones((8, 8))
    got = [numpy(layer(x, training=True)) for layer in (one, two, one)]
    np.testing.assert_array_equal(got, [numpy(alone(x, training=True)) for _ in range(3)])
    restored = QSD.from_config(one.get_config())
    assert restored.seed is not generator
    np.testing.assert_array_equal(numpy(restored(x, training=True)), got[0])


def test_stateless_call():
    layer = QSD(0.5, 1.0, seed=KEY)
    x = ops.ones((3, 4))
    variables = [v.value for v in layer.non_trainable_variables]
    for n in range(2):
        y, variables = layer.stateless_call([], variables, x, training=True)
        np.testing.assert_array_equal(numpy(y), portable(n, (3, 4)))
    np.testing.assert_array_equal(numpy(layer(x, training=True)), portable(0, (3, 4)))


def test_law():
    n, false_alarm = 2**20, 1e-7
    law = quantal.Dilution(0.3, 3.0)  # whose kept values have no two alike in float32
    c = np.sort(numpy(QSD(0.3, 3.0, seed=2)(ops.ones((2**10, 2**10)), training=True)).ravel())
    zeros = int(np.sum(c == 0))
    assert false_alarm < stats.binom.cdf(zeros, n, 0.3) < 1 - false_alarm
    # Dvoretzky-Kiefer-Wolfowitz, and a cell of the table.
    bound = math.sqrt(math.log(2 / false_alarm) / (2 * n)) + 2**-16
    kept = c[zeros:].astype(float)
    rank = np.arange(zeros, n) / n
    assert np.max(np.abs(law.cdf(kept) - rank)) < bound + 1 / n


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "arguments", [{"seed": KEY}, {"seed": 5}, {"noise_shape": (None, 1)}, {}], ids=str
)
def test_a_dropped_unit_is_what_it_is_with_dropout(arguments, dtype):
    """Zero, whatever it was, where Keras selects; NaN where it multiplies, on torch."""
    values = ops.convert_to_tensor(np.resize([np.inf, -np.inf, np.nan, 1.0], (64, 16)), dtype)
    ones = ops.ones((64, 16), dtype)
    both = ((QSD, (0.5, 1.0)), (keras.layers.Dropout, (0.5,)))
    for cls, parameters in both[: 1 if arguments.get("seed") is KEY else 2]:  # which only we know
        found = []
        for x in (values, ones):
            layer = cls(*parameters, dtype=dtype, **arguments)
            if "seed" not in arguments:
                keras.utils.set_random_seed(3)  # where the layer has no stream of its own
                layer.seed_generator.state.assign(ops.full((2,), 7, "uint32"))
            found.append(numpy(ops.cast(layer(x, training=True), "float32")))
        y, c = found
        given = numpy(ops.cast(values, "float32"))
        expected = np.where(c == 0, 0, given)
        if BACKEND == "torch" and not arguments:  # which multiplies there
            expected = np.where((c == 0) & ~np.isfinite(given), np.nan, expected)
        kinds = np.isnan(y), np.isinf(y), y == 0
        np.testing.assert_array_equal(
            kinds, (np.isnan(expected), np.isinf(expected), expected == 0)
        )


# --- granularity ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "dims"),
    [
        ({"noise_shape": (None, 1, None)}, 1),
        ({"noise_shape": [6, 1, 7]}, 1),
        ({"noise_shape": (7,)}, (0, 1)),
        ({"broadcast_dims": 1}, 1),
        ({"broadcast_dims": (-1, 0)}, (0, 2)),
    ],
    ids=str,
)
def test_noise_shape_means_broadcast_dims(arguments, dims):
    got = QSD(0.5, 1.0, seed=KEY, **arguments)(ops.ones((6, 5, 7)), training=True)
    np.testing.assert_array_equal(numpy(got), portable(0, (6, 5, 7), broadcast_dims=dims))


def test_shared_probabilities():
    layer = QSD(0.5, 1.0, seed=KEY, broadcast_dims=2, p_broadcast_dims=0, vary="q")
    dims = {"broadcast_dims": 2, "p_broadcast_dims": 0, "vary": "q"}
    got = layer(ops.ones((6, 5, 7)), training=True)
    np.testing.assert_array_equal(numpy(got), portable(0, (6, 5, 7), **dims))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_noise_shape_with_none_and_a_variable_batch(jit_compile):
    model = trainer(QSD(0.5, 1.0, seed=KEY, noise_shape=(None, 1, None)), (5, 6), jit_compile)
    got = [losses(model, (batch, 5, 6), 1)[0] for batch in (4, 3, 8)]
    want = [
        portable(n, (batch, 5, 6), broadcast_dims=1).mean(dtype=np.float64)
        for n, batch in enumerate((4, 3, 8))
    ]
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "dims", "first"),
    [
        (SpatialQSD1D, 1, None),
        (SpatialQSD1D, 1, True),
        (SpatialQSD2D, 2, False),
        (SpatialQSD2D, 2, True),
        (SpatialQSD3D, 3, False),
        (SpatialQSD3D, 3, True),
    ],
)
def test_spatial(layer, dims, first):
    shape = (4, 3, 5, 6, 7)[: dims + 2]
    formats = {None: {}, False: {"data_format": "channels_last"}}
    arguments = formats.get(first, {"data_format": "channels_first"})
    axes = tuple(range(2, dims + 2)) if first else tuple(range(1, dims + 1))
    got = layer(0.5, 1.0, seed=KEY, **arguments)(ops.ones(shape), training=True)
    np.testing.assert_array_equal(numpy(got), portable(0, shape, broadcast_dims=axes))
    with pytest.raises(ValueError, match=f"expected ndim={dims + 2}"):
        layer(0.5, 1.0)(ops.ones((4, 4)), training=True)


def test_spatial_layers_follow_the_setting_for_images():
    before = keras.config.image_data_format()
    try:
        keras.config.set_image_data_format("channels_first")
        assert SpatialQSD2D(0.5, 1.0).data_format == "channels_first"
        assert SpatialQSD1D(0.5, 1.0).data_format == "channels_last"
    finally:
        keras.config.set_image_data_format(before)


# --- limits and precision ------------------------------------------------------------------------


def test_identity():
    x = ops.ones((3, 4))
    assert QSD(0.5, 1.0)(x) is x
    layer = QSD(0, 1.0)
    assert layer(x, training=True) is x
    assert not layer.variables


def test_rate_one():
    x = ops.ones((3, 4))
    np.testing.assert_array_equal(numpy(QSD(1, 1.0)(x, training=True)), np.zeros((3, 4)))


@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("alpha", [1e-3, 0.2, float("inf")])
def test_half_precision(policy, alpha):
    layer = QSD(0.2, alpha, seed=KEY, dtype=policy)
    y = layer(ops.ones((64, 64)), training=True)
    half = policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(y.dtype) == half
    want = ops.cast(ops.convert_to_tensor(portable(0, (64, 64), 0.2, alpha)), half)
    got, want = (numpy(ops.cast(each, "float32")) for each in (y, want))
    np.testing.assert_array_equal(got, want)


def test_masks_are_passed_on():
    x = np.array([[1, 2, 0, 0], [3, 0, 0, 0]])
    embedded = keras.layers.Embedding(4, 3, mask_zero=True)(x)
    y = QSD(0.5, 1.0)(embedded, training=True)
    np.testing.assert_array_equal(numpy(y._keras_mask), x != 0)


# --- saving --------------------------------------------------------------------------------------


def every_layer():
    inputs = keras.Input((8, 8, 4))
    x = SpatialQSD2D(0.2, 0.2, seed=3, data_format="channels_last")(inputs)
    x = QSD(0.5, 1.0, seed=KEY, noise_shape=(None, 1, 1, None), vary="q", unit_mean=True)(x)
    x = keras.layers.Reshape((8, 32))(x)
    x = SpatialQSD1D(0.25, math.inf)(x)
    x = keras.layers.Reshape((8, 2, 2, 8))(x)
    x = SpatialQSD3D(0.1, 2.0, p_broadcast_dims=(0,))(x)
    x = QSD(0, 1.0, seed=keras.random.SeedGenerator(1))(x)
    x = QSD(0.5, 1.0, p_broadcast_dims=0)(keras.layers.Flatten()(x))
    return keras.Model(inputs, keras.layers.Dense(3)(x))


LOAD = """
import sys, json, numpy as np, keras, quantal.keras
model = keras.saving.load_model(sys.argv[1] + ".keras")
x = np.load(sys.argv[1] + ".npy")
output = keras.ops.convert_to_numpy(model(x))
drawn = keras.ops.convert_to_numpy(model.layers[2](keras.ops.ones((2, 8, 8, 4)), training=True))
configs = [layer.get_config() for layer in model.layers]
np.savez(sys.argv[1] + ".npz", output=output, drawn=drawn, configs=json.dumps(configs))
"""


def test_saving_and_loading_in_a_fresh_process(tmp_path):
    model = every_layer()
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 4)).astype(np.float32)
    model(x, training=True)  # which makes the tables
    path = tmp_path / "model"
    model.save(f"{path}.keras")
    assert path.with_suffix(".keras").stat().st_size < 100_000  # a table has 524,288 bytes
    np.save(f"{path}.npy", x)
    subprocess.run([sys.executable, "-c", LOAD, str(path)], check=True, timeout=120)
    loaded = np.load(f"{path}.npz")
    np.testing.assert_allclose(loaded["output"], numpy(model(x)), rtol=1e-5, atol=1e-6)
    want = portable(0, (2, 8, 8, 4), broadcast_dims=(1, 2), vary="q", unit_mean=True)
    np.testing.assert_array_equal(loaded["drawn"], want)
    configs = json.loads(str(loaded["configs"]))
    assert configs == json.loads(json.dumps([layer.get_config() for layer in model.layers]))


def test_a_checkpoint_of_a_dropout_model_loads(tmp_path):
    def model(drop):
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), drop])

    for seed in (None, KEY):
        before, after = model(keras.layers.Dropout(0.5)), model(QSD(0.5, 1.0, seed=seed))
        after(np.ones((2, 4)), training=True)
        before.save_weights(tmp_path / "dropout.weights.h5")
        after.load_weights(tmp_path / "dropout.weights.h5")
        after.save_weights(tmp_path / "qsd.weights.h5")
        before.load_weights(tmp_path / "qsd.weights.h5")
        x = np.ones((2, 4), np.float32)
        np.testing.assert_array_equal(numpy(before(x)), numpy(after(x)))


def test_pickle_copy_and_clone():
    model = every_layer()
    x = np.ones((2, 8, 8, 4), np.float32)
    model(x, training=True)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), clone):
        np.testing.assert_allclose(numpy(other(x)), numpy(model(x)), rtol=1e-5)
        other(x, training=True)
        for ours, theirs in zip(model.layers, other.layers, strict=True):
            if isinstance(ours, QSD):
                assert ours.get_config() == theirs.get_config()


def finite_json(text):
    """Return what strict JSON means, which has no infinity."""

    def refuse(constant):
        raise ValueError(f"no JSON: {constant}")

    return json.loads(text, parse_constant=refuse)


def test_configurations_are_json():
    model = keras.Sequential([keras.Input((4,)), QSD(0.5, math.inf), keras.layers.Dropout(0.5)])
    convert(model, math.inf)
    assert "inf" in str(finite_json(model.to_json()))
    loaded = keras.models.model_from_json(model.to_json())
    assert [layer.alpha for layer in loaded.layers] == [math.inf, math.inf]
    config = QSD(0.5, math.inf).get_config()
    assert QSD.from_config({**config, "alpha": math.inf}).alpha == math.inf  # as it once was


def test_a_layer_is_dropout_to_others():
    pairs = [(QSD, "Dropout"), (SpatialQSD1D, "SpatialDropout1D")]
    pairs += [(SpatialQSD2D, "SpatialDropout2D"), (SpatialQSD3D, "SpatialDropout3D")]
    for ours, theirs in pairs:
        assert isinstance(ours(0.5, 1.0), getattr(keras.layers, theirs))
    layer = QSD(0.5, 1.0, seed=KEY)
    layer.rate = 0  # as people turn dropout off
    assert layer(ops.ones((4, 4)), training=True) is not None
    np.testing.assert_array_equal(numpy(layer(ops.ones((4, 4)), training=True)), 1)


def test_unknown_rank(on_tensorflow):
    import tensorflow as tf

    spec = tf.TensorSpec(None, tf.float32)
    layer = QSD(0.5, 1.0, seed=KEY)
    call = tf.function(lambda x: layer(x, training=True), input_signature=[spec])
    np.testing.assert_array_equal(call(tf.ones((3, 5))), portable(0, (3, 5)))
    np.testing.assert_array_equal(call(tf.ones((2, 3, 4))), portable(1, (2, 3, 4)))
    layer = QSD(0.5, 1.0, noise_shape=(None, 1))
    with pytest.raises(ValueError, match="noise_shape: expected None where the rank is unknown"):
        tf.function(lambda x: layer(x, training=True), input_signature=[spec])(tf.ones((3, 5)))


def test_exported_models(on_tensorflow, tmp_path):
    """A SavedModel serves, holds no tables, and can be read as a layer again."""
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3), QSD(0.5, 1.0)])
    model(np.ones((2, 4)), training=True)  # which makes the tables
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    model.export(str(tmp_path / "served"))
    size = sum(path.stat().st_size for path in (tmp_path / "served").rglob("*"))
    assert size < 200_000  # a table has 524,288 bytes
    served = keras.layers.TFSMLayer(str(tmp_path / "served"), call_endpoint="serve")
    np.testing.assert_allclose(numpy(served(x)), numpy(model(x)), rtol=1e-6)


# --- a law that changes --------------------------------------------------------------------------


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("dims", [(), (0,)], ids=["own", "shared"])
def test_rate_and_alpha_can_change_in_training(jit_compile, dims):
    layer = QSD(0.5, 1.0, seed=KEY, p_broadcast_dims=dims)
    model = trainer(layer, (6,), jit_compile)
    laws = [(0.5, 1.0), (0.2, 1.0), (0.2, 0.1), (0.2, math.inf)]
    got = []
    for layer.rate, layer.alpha in laws:
        if BACKEND == "jax":  # as the documentation says
            model.make_train_function(force=True)
        got += losses(model, (4, 6), 1)
    want = [
        portable(n, (4, 6), *law, p_broadcast_dims=dims).mean(dtype=np.float64)
        for n, law in enumerate(laws)
    ]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert (layer.rate, layer.alpha) == laws[-1]


def test_a_change_costs_tensorflow_no_trace(on_tensorflow):
    import tensorflow as tf

    layer = QSD(0.5, 1.0, seed=KEY)
    traces = []

    @tf.function
    def step(x):
        traces.append(1)
        return layer(x, training=True)

    for n in range(10):
        layer.rate, layer.alpha = 0.1 + 0.05 * n, 0.5 + n
        got = step(tf.ones((4, 5)))
        np.testing.assert_array_equal(got, portable(n, (4, 5), layer.rate, layer.alpha))
    assert len(traces) == 1


# --- messages ------------------------------------------------------------------------------------


def test_messages():
    with pytest.raises(TypeError, match=r"alpha: expected a number above 0.*with_mean_gain"):
        QSD(0.5)
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
        QSD(-0.5, 1.0)
    layer = QSD(0.5, 1.0)
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
        layer.rate = 2
    with pytest.raises(ValueError, match=r"alpha: expected a number above 0"):
        layer.alpha = 0
    assert (layer.rate, layer.alpha) == (0.5, 1.0)
    with pytest.raises(ValueError, match="rate: expected 0, as it was when the layer was made"):
        QSD(0, 1.0).rate = 0.1
    for seed in (True, 1.5, "seed"):
        with pytest.raises(TypeError, match="seed: expected an integer, a keras"):
            QSD(0.5, 1.0, seed=seed)
    with pytest.raises(ValueError, match="noise_shape: expected None where broadcast_dims"):
        QSD(0.5, 1.0, noise_shape=(None, 1), broadcast_dims=1)
    for noise_shape in ("Invalid", 3, (20, 1.5, 10), (20, -1, 10), (20, 0, 10)):
        with pytest.raises(ValueError, match="noise_shape: expected a tuple of positive"):
            QSD(0.5, 1.0, noise_shape=noise_shape)
    for noise_shape in ((2, 3), (None, None, None)):
        with pytest.raises(ValueError, match="noise_shape: expected a shape within"):
            QSD(0.5, 1.0, noise_shape=noise_shape)(ops.ones((2, 4)), training=True)
    with pytest.raises(ValueError, match="broadcast_dims: expected distinct axes"):
        QSD(0.5, 1.0, broadcast_dims=2)(keras.Input((3,)))
    with pytest.raises(ValueError, match="data_format: expected 'channels_first' or"):
        SpatialQSD2D(0.5, 1.0, data_format="last")
    with pytest.raises(TypeError, match="x: expected a floating-point array"):
        QSD(0.5, 1.0)(ops.ones((2, 4), "int32"), training=True)
