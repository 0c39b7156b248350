"""Batches: what is in them, in which order, and that all depends on the seed alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.data import Batch, Data, Split, batches, load, steps
from examples.data.batches import evaluation
from examples.data.cifar10 import augment
from examples.experiments import EXPERIMENTS, experiment
from examples.run import Run
from examples.settings import Settings

DIGITS = experiment("digits-mlp")
MEDIUM = experiment("ptb-medium")


def numbered(count: int) -> Data:
    """Samples that are their own numbers."""
    split = Split(np.arange(count, dtype=np.float32)[:, None], np.arange(count, dtype=np.int32))
    return Data(split, split)


def text(count: int) -> Data:
    split = Split(np.arange(count, dtype=np.int32))
    return Data(split, split, split)


def seen(data: Data, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    return [batch.y.tolist() for batch in batches(DIGITS, data, seed, epoch)]


# --- samples -------------------------------------------------------------------------------------


def test_an_epoch_has_every_sample_once_but_for_the_last_part() -> None:
    data = numbered(3 * 64 + 5)
    epoch = seen(data)
    assert [len(batch) for batch in epoch] == [64, 64, 64]
    assert steps(DIGITS, data) == 3
    assert len({sample for batch in epoch for sample in batch}) == 192
    left_out = [set(range(197)) - {s for batch in seen(data, 0, e) for s in batch} for e in (0, 1)]
    assert left_out[0] != left_out[1]  # others another time


def test_inputs_and_targets_stay_together() -> None:
    for batch in batches(DIGITS, numbered(200), 0, 0):
        np.testing.assert_array_equal(batch.x[:, 0], batch.y)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    data = numbered(128)
    assert seen(data) == seen(data)
    orders = [seen(data, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert all(orders.count(order) == 1 for order in orders)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_one_seed_gives_the_same_batches_in_every_backend_and_condition(
    name: str, data_folder: Path, tmp_path: Path
) -> None:
    first: list[Batch] = []
    for backend, layer, stream in (
        ("torch", "qsd", "native"),
        ("keras", "none", "native"),
        ("jax", "dropout", "portable"),
        ("jax", "dist-p", "native"),
    ):
        settings = Settings(name, backend, layer=layer, seed=4, stream=stream)
        run = Run(settings, tmp_path, data=data_folder)
        found = list(run.batches(2))
        first = first or found
        assert len(found) == len(first) == run.steps
        for one, two in zip(first, found, strict=True):
            np.testing.assert_array_equal(one.x, two.x)
            np.testing.assert_array_equal(one.y, two.y)


@pytest.mark.parametrize("count", [1, 63])
def test_too_few_samples_are_an_error(count: int) -> None:
    words = rf"limit: expected at least 64, one batch\. Received: limit={count}"
    with pytest.raises(ValueError, match=words):
        steps(DIGITS, numbered(count))
    with pytest.raises(ValueError, match=words):
        list(batches(DIGITS, numbered(count), 0, 0))


def test_all_of_a_part_is_evaluated_in_order() -> None:
    found = list(evaluation(DIGITS, numbered(1203), "test"))
    assert [len(batch.y) for batch in found] == [512, 512, 179]
    assert np.concatenate([batch.y for batch in found]).tolist() == list(range(1203))


def test_a_limit_slices_every_part() -> None:
    data = text(100).limited(70)
    assert [len(data.train.x), len(data.test.x), len(data.valid.x)] == [70, 70, 70]
    data = numbered(100).limited(70)
    assert [len(data.train.x), len(data.train.y)] == [70, 70]
    assert data.valid is None
    assert len(numbered(100).limited(None).train.x) == 100


# --- a text --------------------------------------------------------------------------------------


def test_windows_continue_each_other_and_targets_are_the_next_words() -> None:
    data = text(20 * 100 + 7)
    found = list(batches(MEDIUM, data, seed=0, epoch=0))
    assert len(found) == steps(MEDIUM, data) == 2  # 99 targets in each place, 35 a window
    for batch in found:
        assert batch.x.shape == batch.y.shape == (20, 35)
        np.testing.assert_array_equal(batch.y, batch.x + 1)
    np.testing.assert_array_equal(found[0].x[:, 0], np.arange(20) * 100)
    np.testing.assert_array_equal(found[1].x, found[0].x + 35)


@pytest.mark.parametrize(("columns", "windows"), [(36, 1), (70, 1), (71, 2), (105, 2), (106, 3)])
def test_the_number_of_windows(columns: int, windows: int) -> None:
    data = text(20 * columns + 19)
    assert steps(MEDIUM, data) == windows
    assert len(list(evaluation(MEDIUM, data, "valid"))) == windows
    assert len(list(batches(MEDIUM, data, 0, 0))) == windows


@pytest.mark.parametrize("count", [720, 736, 737])  # 735 is 21 windows of 35 words
def test_a_test_text_is_one_stream_from_its_first_word_to_its_last(count: int) -> None:
    found = list(evaluation(MEDIUM, text(count), "test"))
    assert np.concatenate([batch.x for batch in found], axis=1).tolist() == [list(range(count - 1))]
    assert all(np.array_equal(batch.y, batch.x + 1) for batch in found)
    assert {batch.x.shape for batch in found[:-1]} == {(1, 35)}
    assert found[-1].x.size > 0


def test_too_short_a_text_is_an_error() -> None:
    words = r"limit: expected at least 720, one batch\. Received: limit=719"
    with pytest.raises(ValueError, match=words):
        steps(MEDIUM, text(719))
    with pytest.raises(ValueError, match=words):  # rather than a mean over nothing
        list(evaluation(MEDIUM, text(719), "valid"))
    assert steps(MEDIUM, text(720)) == 1


def test_a_text_is_read_in_its_order_in_every_epoch() -> None:
    data = text(2000)
    one, two = (next(batches(MEDIUM, data, seed, epoch)) for seed, epoch in ((0, 0), (1, 5)))
    np.testing.assert_array_equal(one.x, two.x)


# --- augmentation --------------------------------------------------------------------------------


class Chosen:
    """A generator that draws what the test says."""

    def __init__(self, top: int, left: int, flipped: bool) -> None:
        self.corner, self.flipped = (top, left), flipped

    def integers(self, low: int, high: int, size: tuple[int, ...]) -> np.ndarray:
        assert (low, high) == (0, 5)
        return np.broadcast_to(np.array(self.corner)[:, None, None], size)

    def random(self, size: tuple[int, ...]) -> np.ndarray:
        return np.full(size, 0.49 if self.flipped else 0.5)


def by_hand(image: np.ndarray, top: int, left: int, flipped: bool) -> np.ndarray:
    """Pixel by pixel: what lies outside is what lies as far inside, edge pixels twice."""
    done = np.empty_like(image)
    for row in range(32):
        for column in range(32):
            there = 31 - column if flipped else column
            r, c = (n if n >= 0 else -1 - n for n in (row + top - 2, there + left - 2))
            done[row, column] = image[min(r, 63 - r), min(c, 63 - c)]
    return done


@pytest.mark.parametrize("top", [0, 2, 4])
@pytest.mark.parametrize("left", [0, 1, 4])
@pytest.mark.parametrize("flipped", [True, False])
def test_augmentation_moves_and_flips_exactly(top: int, left: int, flipped: bool) -> None:
    images = np.arange(2 * 32 * 32 * 3, dtype=np.float32).reshape(2, 32, 32, 3)
    done = augment(images, Chosen(top, left, flipped))
    assert done.dtype == np.float32
    for before, after in zip(images, done, strict=True):
        np.testing.assert_array_equal(after, by_hand(before, top, left, flipped))


def test_each_image_is_moved_by_itself_and_all_ways_are_alike() -> None:
    pixels = np.arange(32 * 32, dtype=np.float32).reshape(32, 32, 1)
    count = 20_000
    done = augment(np.broadcast_to(pixels, (count, 32, 32, 1)), np.random.default_rng(0))
    kinds, counts = np.unique(done[:, 8:10, 8:10, 0].reshape(count, -1), axis=0, return_counts=True)
    assert len(kinds) == 50  # 5 × 5 places, flipped or not
    expected = count / 50
    assert np.abs(counts - expected).max() < 5 * np.sqrt(expected)


def test_augmentation_uses_the_given_generator_alone() -> None:
    images = np.random.default_rng(0).normal(size=(8, 32, 32, 3)).astype(np.float32)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one, two, three = (augment(images, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, three)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_training_images_are_augmented_and_others_are_not(data_folder: Path) -> None:
    data = load("cifar10", data_folder)
    wrn = experiment("cifar10-wrn")
    plain = replace(data, augment=None)
    for one, two in zip(batches(wrn, data, 0, 0), batches(wrn, plain, 0, 0), strict=True):
        assert not np.array_equal(one.x, two.x)
        np.testing.assert_array_equal(one.y, two.y)
    (batch,) = evaluation(wrn, data, "test")
    np.testing.assert_array_equal(batch.x, data.test.x)
