"""What is measured of a trained model: by hand, in chunks, and within bounds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from synthetic import write

from examples import sparse
from examples.data import Batch
from examples.settings import Settings


def a_run(*inputs, sites=1, seed=3):
    return SimpleNamespace(
        experiment=SimpleNamespace(measured=("a site",) * sites),
        settings=SimpleNamespace(seed=seed),
        evaluation=lambda part: (Batch(x, x) for x in inputs if part == "test"),
    )


def measure(run, outputs, weights):
    """Measure with a function of one batch."""
    return sparse.measure(run, lambda inputs, masks: (outputs(x, masks) for x in inputs), weights)


def test_a_small_case_by_hand():
    x = np.array([[1.0, -1.0], [3.0, 5.0]])
    found = measure(a_run(x), lambda x, masks: [x * (2 if masks else 1)], {})
    assert found["masks-off/1/units"].tolist() == [2, 2]
    assert found["masks-off/1/samples"].tolist() == [0, 4]
    assert found["masks-off/1/totals"].tolist() == [2, 36 / 4 - 2**2, 10 / 4]
    assert found["masks-on/1/units"].tolist() == [4, 4]  # masks are on in this view, and no other
    assert found["masks-on/1/totals"].tolist() == [4, 36 - 4**2, 5]
    assert sorted(found["permuted/1/samples"]) == [0, 4]
    assert dict(zip(sparse.TOTALS, found["permuted/1/totals"], strict=True))["absolute"] == 2.5


def test_an_image_is_a_sample_and_its_places_are_units():
    maps = np.arange(24.0).reshape(2, 2, 3, 2)
    found = measure(a_run(maps), lambda x, masks: [x], {})
    assert found["masks-off/1/samples"].tolist() == [5.5, 17.5]
    assert found["masks-off/1/units"].tolist() == (np.arange(12) + 6.0).tolist()


def test_every_word_is_a_sample_and_the_features_are_units():
    words = np.zeros((2, 3), np.int32)
    outputs = np.arange(24.0).reshape(2, 3, 4)
    found = measure(a_run(words), lambda x, masks: [outputs], {})
    assert found["masks-off/1/samples"].tolist() == [1.5, 5.5, 9.5, 13.5, 17.5, 21.5]
    assert found["masks-off/1/units"].tolist() == [10, 11, 12, 13]


def test_each_site_is_measured():
    x = np.ones((4, 2))
    found = measure(a_run(x, sites=3), lambda x, masks: [x, 2 * x, 3 * x], {})
    assert [found[f"permuted/{site}/totals"][0] for site in (1, 2, 3)] == [1, 2, 3]
    with pytest.raises(ValueError, match="zip"):
        measure(a_run(x, sites=2), lambda x, masks: [x], {})


def test_in_batches_as_in_one():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(250, 4, 5, 3))
    kernel = rng.normal(size=(60, 7))

    def outputs(x, masks):
        return [x, x.reshape(len(x), -1) @ kernel]

    whole = measure(a_run(images, sites=2), outputs, {})
    parts = np.split(images, [50, 180])
    streamed = measure(a_run(*parts, sites=2), outputs, {})
    assert whole.keys() == streamed.keys()
    for name, values in whole.items():
        np.testing.assert_allclose(streamed[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
    expected = np.abs(images.reshape(250, -1) @ kernel).mean()
    assert whole["masks-off/2/totals"][2] == pytest.approx(expected, rel=1e-6)


def test_memory_is_bounded():
    sizes = []

    def outputs(x, masks):
        sizes.append(len(x))
        return [x]

    x = np.arange(12_000.0).reshape(-1, 1)
    found = measure(a_run(x[:450], x[450:]), outputs, {"w": np.arange(100_000.0)})
    assert max(sizes) <= 100
    assert sum(sizes) == 3 * 12_000
    assert np.array_equal(found["masks-off/1/samples"], x[: sparse.SAMPLES, 0])
    assert found["masks-off/1/totals"][0] == np.mean(x)  # of all, also those not kept
    assert len(set(found["weights/w"])) == sparse.VALUES
    assert sum(array.nbytes for array in found.values()) < 300_000
    again = measure(a_run(x), outputs, {"w": np.arange(100_000.0)})
    assert np.array_equal(found["weights/w"], again["weights/w"])


def test_of_many_units_some_are_kept():
    x = np.tile(np.arange(6_000.0), (2, 1))
    units = measure(a_run(x), lambda x, masks: [x], {})["masks-off/1/units"]
    assert units.shape == (sparse.VALUES,)
    assert len(set(units)) == sparse.VALUES


def test_weights_as_they_are_where_there_are_few():
    weights = {"dense1/kernel": np.arange(6.0).reshape(2, 3), "dense1/bias": np.ones(3)}
    found = measure(a_run(np.ones((1, 2))), lambda x, masks: [x], weights)
    assert found["weights/dense1/kernel"].tolist() == [0, 1, 2, 3, 4, 5]
    assert found["weights/dense1/bias"].tolist() == [1, 1, 1]


def test_permuting_keeps_the_pixels_of_an_image_and_their_channels():
    rng = np.random.default_rng(0)
    images = rng.random((20, 6, 7, 3))
    before = images.copy()
    mixed = sparse.permute(images, np.random.default_rng(1))
    assert np.array_equal(images, before)
    assert mixed.shape == images.shape
    orders = []
    for old, new in zip(images.reshape(20, 42, 3), mixed.reshape(20, 42, 3), strict=True):
        places = {tuple(pixel): place for place, pixel in enumerate(old)}
        orders.append(
            tuple(places[tuple(pixel)] for pixel in new)
        )  # a pixel that is not there: KeyError
    assert len(set(orders)) == 20  # each image in its own way
    assert all(sorted(order) == list(range(42)) for order in orders)
    assert np.array_equal(mixed, sparse.permute(images, np.random.default_rng(1)))


def test_permuting_reorders_the_words_of_a_text():
    words = np.arange(60, dtype=np.int32).reshape(3, 20)
    mixed = sparse.permute(words, np.random.default_rng(0))
    assert mixed.dtype == np.int32
    assert np.array_equal(np.sort(mixed, axis=1), words)
    assert not np.array_equal(mixed, words)


def test_only_the_last_view_is_permuted():
    seen = []
    x = np.arange(40.0).reshape(2, 20)
    measure(a_run(x), lambda x, masks: [seen.append((x, masks)) or x], {})
    assert [masks for _, masks in seen] == [True, False, False]
    assert [np.array_equal(given, x) for given, _ in seen] == [True, True, False]


def test_a_model_that_diverged_is_measured_without_a_warning():
    x = np.array([[1e30, np.inf], [-np.inf, np.nan]], np.float32)
    found = measure(a_run(x), lambda x, masks: [x], {"w": np.array([1e300, np.nan])})
    assert np.isnan(found["masks-off/1/totals"]).any()
    assert np.isinf(found["weights/w"][0])


def test_a_run_keeps_what_was_measured(tmp_path):
    run = write(Settings("mnist-mlp", "torch", epochs=3), tmp_path)
    found = sparse.load(run.folder)
    assert found["masks-on/3/units"].shape == (90,)
    assert found["weights/dense2/bias"].dtype == np.float32
    assert sparse.load(tmp_path) == {}
