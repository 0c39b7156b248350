"""What convert shares in every framework: which places are chosen, and what is said of them."""

import math

import pytest

from quantal import Dilution
from quantal.sites import Selection, Site, Sites, UnreachedWarning, count_of_draws

UNREACHED = Site("head", "alpha_dropout", 0.1, unreached="another law")


@pytest.mark.parametrize(
    ("include", "exclude", "chosen"),
    [
        (None, None, ["a.drop", "a.b.drop", "c"]),
        ("a.*", None, ["a.drop", "a.b.drop"]),
        ("a", None, []),
        (None, "*.b.*", ["a.drop", "c"]),
        (["a.drop", "c"], None, ["a.drop", "c"]),
        ("a.*", lambda name, module: module == 2, ["a.drop"]),
        (lambda name, module: module == 3, None, ["c"]),
    ],
)
def test_include_and_exclude(include, exclude, chosen):
    selection = Selection(1.0, include, exclude)
    modules = {"a.drop": 1, "a.b.drop": 2, "c": 3}
    assert [name for name, module in modules.items() if selection(name, module)] == chosen


@pytest.mark.parametrize("name", ["include", "exclude"])
def test_a_choice_of_the_wrong_type(name):
    with pytest.raises(TypeError, match=rf"{name}: expected a name pattern .* Received: {name}=3"):
        Selection(1.0, **{name: 3})


@pytest.mark.parametrize("alpha", [0, -1, math.nan, "a", None])
def test_a_wrong_alpha_is_found_before_anything_else(alpha):
    with pytest.raises((ValueError, TypeError), match="alpha: expected"):
        Selection(alpha)


def test_alpha_as_a_function_of_the_rate():
    assert Selection(lambda rate: 10 * rate).dilution(0.5) == Dilution(0.5, 5.0)


def test_what_cannot_be_swapped_is_an_error_or_a_warning_that_names_it():
    words = r"head \(alpha_dropout\): another law"
    with pytest.raises(ValueError, match=words):
        Selection(1.0).settle(["a"], [UNREACHED])
    with pytest.warns(UnreachedWarning, match=words):
        Selection(1.0, strict=False).settle(["a"], [UNREACHED])


def test_nothing_to_swap_is_an_error_or_a_warning():
    with pytest.raises(ValueError, match="no dropout to swap"):
        Selection(1.0).settle([], [])
    with pytest.warns(UnreachedWarning, match="no dropout to swap"):
        Selection(1.0, strict=False).settle([], [])


def test_all_is_well():
    Selection(1.0).settle(["a"], [])


def test_the_table_names_what_is_out_of_reach():
    text = repr(Sites([UNREACHED, Site("", "QSD", 0.5, 1.0)]))
    assert "out of reach: another law" in text
    assert "(model)" in text
    assert text.endswith("2 sites, 1 of them QSD")


@pytest.mark.parametrize(
    "law",
    [Dilution(0.5, 1.0), Dilution(0.5, 1.0, vary="q"), Dilution(0.5, 1.0, unit_mean=True)],
)
def test_the_mean_gain_is_that_of_the_law(law):
    assert Site.of("a", "QSD", law).mean_gain == law.mean


def test_the_mean_gain_of_dropout_and_of_what_cannot_be_read():
    assert Site("a", "Dropout", 0.5).mean_gain == 1
    assert math.isnan(Site("a", "QSD", math.nan, 1.0).mean_gain)
    assert math.isnan(Site("a", "QSD", 0.5, math.nan).mean_gain)


@pytest.mark.parametrize("n", [1, 0, -3])
def test_too_few_draws(n):
    with pytest.raises(ValueError, match="n: expected an integer of at least 2"):
        count_of_draws(n)


@pytest.mark.parametrize("n", [2.0, True, "8", None])
def test_draws_that_are_no_number(n):
    with pytest.raises(TypeError, match="n: expected an integer of at least 2"):
        count_of_draws(n)
