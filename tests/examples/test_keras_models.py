"""The Keras models: sizes, layout of the weights, sites."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import pytest
from keras_runs import narrow_run

from examples import initial
from examples.experiments import EXPERIMENTS
from examples.run import Run
from examples.settings import Settings
from examples.with_keras import weights
from examples.with_keras.evaluation import evaluate, site_outputs
from examples.with_keras.models import Carried, build, sites
from examples.with_keras.train import prepare
from quantal.keras import QSD

# WRN-16-6 by hand: stem; per group the convolutions, the shortcut and the four normalisations
# (scale and shift); the last normalisation and the classes.
WRN = 3 * 9 * 16
WRN += 9 * (16 * 96 + 3 * 96 * 96) + 16 * 96 + 2 * (16 + 3 * 96)
WRN += 9 * (96 * 192 + 3 * 192 * 192) + 96 * 192 + 2 * (96 + 3 * 192)
WRN += 9 * (192 * 384 + 3 * 384 * 384) + 192 * 384 + 2 * (192 + 3 * 384)
WRN += 2 * 384 + 384 * 10 + 10
COUNTS = {
    "digits-mlp": 64 * 128 + 128 + 128 * 256 + 256 + 256 * 512 + 512 + 512 * 10 + 10,
    "mnist-mlp": 784 * 128 + 128 + 128 * 256 + 256 + 256 * 512 + 512 + 512 * 10 + 10,
    "mnist-lenet5": 61_706,
    "cifar10-wrn": WRN,
    "ptb-medium": 10_000 * 650 + 2 * 4 * (650 * 1300 + 650) + 650 * 10_000 + 10_000,
    "ptb-large": 10_000 * 1300 + 2 * 4 * (1300 * 2600 + 1300) + 1300 * 10_000 + 10_000,
    "reviews-lstm": 20_000 * 128 + 4 * (128 * 256 + 128) + 129,
    "reviews-gru": 20_000 * 128 + 3 * (128 * 256 + 2 * 128) + 129,
}


def full(name: str, out: Path, data: Path, **settings: object) -> Run:
    return Run(Settings(name, "keras", **settings), out, data=data)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_parameter_counts_are_the_architectures(
    name: str, tmp_path: Path, data_folder: Path
) -> None:
    model = build(full(name, tmp_path, data_folder))
    assert sum(np.prod(v.shape) for v in model.trainable_variables) == COUNTS[name]
    assert len(sites(model)) == len(EXPERIMENTS[name].sites)


@pytest.mark.parametrize("name", ["cifar10-wrn", "ptb-medium", "reviews-gru"])
def test_weights_come_back_as_they_were_loaded(
    name: str, tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run(name, tmp_path, data_folder)
    model = build(run)
    drawn = initial.weights(run.experiment, 7)
    weights.load(model, drawn)
    found = weights.dump(model, run.experiment)
    assert found.keys() == drawn.keys()
    for part, value in drawn.items():
        np.testing.assert_array_equal(found[part], value.astype(np.float32), err_msg=part)
    assert sum(v.size for v in found.values()) == sum(
        np.prod(v.shape) for v in model.trainable_variables
    )


def test_gru_follows_the_canonical_gates(tmp_path: Path, data_folder: Path) -> None:
    run = narrow_run("reviews-gru", tmp_path, data_folder, layer="none")
    model = prepare(run)
    rng = np.random.default_rng(0)
    drawn = {k: rng.normal(0, 0.5, v.shape) for k, v in initial.weights(run.experiment, 0).items()}
    weights.load(model, drawn)
    words = rng.integers(0, 100, (3, run.data.train.x.shape[1])).astype(np.int32)
    h = np.zeros((3, run.experiment.sizes["units"]))
    for x in drawn["embedding"][words].swapaxes(0, 1):
        given = np.split(x @ drawn["rnn/kernel"] + drawn["rnn/bias"][0], 3, axis=1)
        own = np.split(h @ drawn["rnn/recurrent"] + drawn["rnn/bias"][1], 3, axis=1)
        r, z = (1 / (1 + np.exp(-(a + b))) for a, b in zip(given[:2], own[:2], strict=True))
        h = (1 - z) * np.tanh(given[2] + r * own[2]) + z * h
    expected = h @ drawn["dense/kernel"] + drawn["dense/bias"]
    found = keras.ops.convert_to_numpy(model(words))
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


def test_strided_convolutions_are_padded_on_both_sides(tmp_path: Path, data_folder: Path) -> None:
    model = build(narrow_run("cifar10-wrn", tmp_path, data_folder))
    layer = model.get_layer("group2_block1_conv1")
    assert layer.strides == (2, 2)
    assert layer.padding == "valid"
    assert layer.input.shape[1:3] == (34, 34)


def test_layer_at_the_sites(tmp_path: Path, data_folder: Path) -> None:
    def first(layer: str, stream: str = "native") -> keras.Layer:
        run = narrow_run("reviews-lstm", tmp_path, data_folder, layer=layer, stream=stream)
        return sites(build(run))[0]

    assert type(first("none")) is keras.layers.Identity
    assert type(first("dropout")) is keras.layers.Dropout
    dropout = first("dropout", "portable")
    assert isinstance(dropout, QSD)
    assert dropout.alpha == np.inf
    assert [first(layer).dilution.vary for layer in ("qsd", "dist-p", "dist-q")] == ["pq", "p", "q"]


@pytest.mark.parametrize("layer", ["dropout", "qsd"])
def test_embedding_of_reviews_is_diluted_word_by_word(
    layer: str, tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run("reviews-lstm", tmp_path, data_folder, layer=layer, variant="words")
    model = prepare(run)
    x = run.data.test.x[:4]
    outputs = site_outputs(model)
    ratios = next(outputs([x], True))[0] / next(outputs([x], False))[0]
    assert (ratios == 0).any()
    assert (ratios != 0).any()
    np.testing.assert_allclose(ratios, np.broadcast_to(ratios[:, :, :1], ratios.shape), rtol=1e-5)


def test_sites_without_masks_repeat_and_with_masks_do_not(
    tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run("cifar10-wrn", tmp_path, data_folder)
    model = prepare(run)
    before = [v.numpy() for v in model.non_trainable_variables if "moving" in v.path]
    x = run.data.test.x[:8]
    every = site_outputs(model)

    def outputs(masks: bool) -> list[np.ndarray]:
        *at_sites, final = next(every([x], masks))
        assert final.shape[-1] == 16  # the last ReLU, which is no site
        assert final.min() == 0
        return at_sites

    assert [y.shape[-1] for y in outputs(False)] == [8, 16]
    for off, again, on, other in zip(
        outputs(False), outputs(False), outputs(True), outputs(True), strict=True
    ):
        np.testing.assert_array_equal(off, again)
        assert (on != other).any()
    after = [v.numpy() for v in model.non_trainable_variables if "moving" in v.path]
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


def test_state_is_carried_between_windows_and_not_out_of_evaluations(
    tmp_path: Path, data_folder: Path
) -> None:
    run = narrow_run("ptb-medium", tmp_path, data_folder, layer="none")
    model = prepare(run)
    first, second, *_ = run.evaluation("valid")
    after = model(second.x)
    for layer in model.layers:
        if isinstance(layer, Carried):
            layer.reset_state()
    model(first.x)
    assert not np.allclose(model(second.x), after)  # it goes on from the first
    for part in ("valid", "test"):
        cost, _ = evaluate(model, run, part)
        model(first.x)
        assert evaluate(model, run, part)[0] == cost
