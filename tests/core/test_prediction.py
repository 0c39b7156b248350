"""What Monte-Carlo predictions share in every framework."""

import copy
import pickle

import pytest

from quantal._prediction import Prediction, count_of_draws, nothing_to_draw, places_that_draw
from quantal._selection import Place
from quantal.sites import Site

DROPOUT, QSD = Place(Site("a", "Dropout", 0.5), 1), Place(Site("b", "QSD", 0.5, 1.0), 2)


@pytest.mark.parametrize("n", [1, 0, -3])
def test_too_few_draws(n):
    with pytest.raises(ValueError, match="n: expected an integer of at least 2"):
        count_of_draws(n)


@pytest.mark.parametrize("n", [2.0, True, "8", None])
def test_draws_that_are_no_number(n):
    with pytest.raises(TypeError, match="n: expected an integer of at least 2"):
        count_of_draws(n)


def test_a_prediction_is_a_pair_with_samples_beside_it():
    made = Prediction(1, 2, samples=[3])
    mean, std = made
    assert (mean, std, made.mean, made.std, made.samples) == (1, 2, 1, 2, [3])
    assert Prediction(1, 2).samples is None
    assert repr(made) == "Prediction(mean=1, std=2)"
    for again in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (again, again.samples) == (made, [3])


def test_what_draws():
    assert places_that_draw([DROPOUT, QSD], native=False) == [QSD]
    assert places_that_draw([DROPOUT, QSD], native=True) == [DROPOUT, QSD]
    with pytest.raises(ValueError, match="model: expected one with QSD; with native=True"):
        places_that_draw([DROPOUT], native=False)
    with pytest.raises(ValueError, match=str(nothing_to_draw(native=True))[:40]):
        places_that_draw([], native=True)
