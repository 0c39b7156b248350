"""What convert shares in every framework: which places are chosen, and what is said of them."""

import math

import pytest

from quantal import Dilution
from quantal._selection import Place, Selection
from quantal.sites import Site, UnreachedWarning

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


def places(*sites):
    return [Place(site, module) for module, site in enumerate(sites)]


def test_the_step_from_places_to_what_is_swapped():
    found = places(
        Site("a", "Dropout", 0.5),
        Site("b", "QSD", 0.5, 1.0),
        Site("c", "Dropout", 0.25),
        Site("left", "Dropout", 0.1),
    )
    chosen = Selection(lambda rate: 4 * rate, exclude="left").choose(found)
    assert [(place.site.name, alpha) for place, alpha in chosen] == [("a", 2.0), ("c", 1.0)]


def test_a_rate_that_nobody_knows_needs_a_number():
    found = places(Site("a", "F.dropout", math.nan))
    ((_, alpha),) = Selection(2.0).choose(found)
    assert alpha == 2.0
    words = r"a \(F\.dropout\): its rate is known only when it runs: alpha must be a number here"
    with pytest.raises(ValueError, match=words):
        Selection(lambda rate: rate).choose(found)
    with pytest.raises(ValueError, match="known only when it runs"):
        Selection(lambda rate: rate).alpha_for(math.nan)


def test_a_framework_may_object_to_places():
    found = places(Site("a", "Dropout", 0.5), Site("b", "Dropout", 0.5), Site("c", "Dropout", 0.5))
    seen = []

    def why_not(place, selected, left_out):
        seen.append((place.site.name, len(selected), [p.site.name for p in left_out]))
        return "a reason" if place.site.name == "b" else ""

    with pytest.warns(UnreachedWarning, match=r"b \(Dropout\): a reason"):
        chosen = Selection(1.0, exclude="c", strict=False).choose(found, why_not)
    assert [place.site.name for place, _ in chosen] == ["a"]
    assert seen == [("a", 2, ["c"]), ("b", 2, ["c"])]


@pytest.mark.parametrize("alpha", [lambda rate: -rate, lambda rate: None, lambda rate: "x"])
def test_a_function_that_returns_no_alpha(alpha):
    with pytest.raises((ValueError, TypeError), match=r"^alpha: expected .* Received: alpha="):
        Selection(alpha).choose(places(Site("a", "Dropout", 0.5)))


def test_no_alpha_at_all_gives_advice():
    with pytest.raises(TypeError, match=r"The paper used .*with_mean_gain"):
        Selection(None)


def test_a_model_that_is_qsd_already_says_so():
    found = places(Site("a", "QSD", 0.5, 1.0), Site("b", "QSD", 0.5, 1.0))
    with pytest.raises(ValueError, match=r"QSD is in 2 places already.*\n.*revert\(model\) first"):
        Selection(1.0).choose(found)
    with pytest.warns(UnreachedWarning, match="QSD is in 1 place already"):
        Selection(1.0, strict=False).choose(found[:1])


def test_a_warning_points_at_the_user():
    with pytest.warns(UnreachedWarning) as caught:
        Selection(1.0, strict=False).choose([])
    assert caught[0].filename == __file__
