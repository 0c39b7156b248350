"""Whatever is passed to the core's public functions: they do it, or raise the one error of the house.

That is a TypeError or a ValueError which says the argument, what was expected and what was received.
"""

import enum
import fractions
import weakref

import hypothesis.extra.numpy as npst
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quantal
from quantal import Dilution, Key, reference
from quantal import numpy as on_numpy
from quantal.conformance import coefficient_shapes
from quantal.keys import threefry2x32
from quantal.sites import Site, Sites
from quantal.table import shared_table, table

X = np.ones((2, 3), np.float32)
LAW = Dilution(0.5, 1.0)
DRAWN = reference.draw(LAW, (2, 3), np.random.default_rng(0))


class Nothing:
    pass


class Tuple(tuple):
    def __iter__(self):
        raise ZeroDivisionError


def shown(**given):
    site = Site(**given)
    return site.mean_gain, repr(Sites([site]))


# Each function with arguments that are right; one of them at a time is then wrong.
FUNCTIONS = {
    "Dilution": (Dilution, {"rate": 0.5, "alpha": 1.0, "vary": "pq", "unit_mean": False}),
    "with_mean_gain": (Dilution.with_mean_gain, {"rate": 0.5, "gain": 1.2}),
    "moment": (LAW.moment, {"k": 2}),
    "pdf": (LAW.pdf, {"c": 0.5}),
    "cdf": (LAW.cdf, {"c": 0.5}),
    "ppf": (LAW.ppf, {"u": 0.5}),
    "sample": (LAW.sample, {"shape": 3, "rng": np.random.default_rng(0)}),
    "key": (quantal.key, {"seed": 0}),
    "Key": (Key, {"word0": 0, "word1": 0}),
    "fold_in": (quantal.key(0).fold_in, {"n": 1}),
    "split": (quantal.key(0).split, {"n": 2}),
    "blocks": (quantal.key(0).blocks, {"start": 0, "count": 2}),
    "bits": (quantal.key(0).bits, {"shape": 2}),
    "levels": (quantal.key(0).levels, {"shape": 2}),
    "indices": (quantal.key(0).indices, {"shape": (2, 3)}),
    "threefry2x32": (
        threefry2x32,
        {
            "key": (0, 1), "counter": (0, 2), "rotate": lambda x, places: x << places,
            "xor": lambda x, y: x ^ y,
        },
    ),
    "table": (table, {"dilution": LAW}),
    "shared_table": (shared_table, {"dilution": LAW}),
    "coefficients": (
        on_numpy.coefficients,
        {"dilution": LAW, "mask_shape": (2, 3), "p_shape": (1, 3), "rng": quantal.key(0)},
    ),
    "draw": (
        reference.draw,
        {
            "dilution": LAW, "shape": (2, 3), "rng": np.random.default_rng(0),
            "broadcast_dims": (), "p_broadcast_dims": (0,),
        },
    ),
    "coefficient_shapes": (
        coefficient_shapes, {"shape": (2, 3), "broadcast_dims": (), "p_broadcast_dims": ()},
    ),
    "Site": (
        shown,
        {
            "name": "drop", "kind": "QSD", "rate": 0.5, "alpha": 1.0, "unreached": "", "vary": "pq",
            "unit_mean": False,
        },
    ),
    "Site.of": (Site.of, {"name": "drop", "kind": "QSD", "law": LAW}),
    "Sites": (Sites, {"sites": [Site("drop", "QSD", 0.5)]}),
    "forward": (reference.forward, {"x": X, "drawn": DRAWN}),
    "backward": (reference.backward, {"upstream": X, "drawn": DRAWN}),
    **{
        f"dilute of {module.__name__}": (
            module.dilute,
            {
                "x": X, "rate": 0.5, "alpha": 1.0, "rng": quantal.key(0), "training": True,
                "vary": "pq", "unit_mean": False, "broadcast_dims": (), "p_broadcast_dims": (0,),
            },
        )
        for module in (quantal, on_numpy)
    },
}  # fmt: skip
PLACES = [(function, name) for function, (_, right) in FUNCTIONS.items() for name in right]
for name in ("rotate", "xor"):  # functions of the caller's, which may do what they like
    PLACES.remove(("threefry2x32", name))
PLACES.remove(("Site.of", "law"))  # a protocol: whatever has its attributes


# Not integers of a middling size, of which some are the shapes of arrays that fill the memory.
integers = st.integers().filter(lambda n: abs(n) < 50 or abs(n) > 2**70)
numbers = st.one_of(integers, st.floats(), st.fractions(), st.decimals(), st.complex_numbers())
no_integers = st.one_of(
    npst.floating_dtypes(), npst.complex_number_dtypes(), npst.boolean_dtypes(),
    npst.datetime64_dtypes(), npst.byte_string_dtypes(), npst.unicode_string_dtypes(),
)  # fmt: skip
anything = st.one_of(
    numbers,
    st.lists(numbers, max_size=3),
    npst.arrays(no_integers, npst.array_shapes(max_dims=3, max_side=3)),
    npst.arrays(np.int16, npst.array_shapes(max_dims=2, max_side=3), elements=st.integers(-9, 9)),
)


@pytest.mark.parametrize(("function", "name"), PLACES)
def test_one_form_for_every_hostile_argument(function, name, hostile, complaint):
    call, right = FUNCTIONS[function]
    gone = weakref.proxy(Nothing())  # cannot even be asked for its class
    said = [complaint(call, **right | {name: wrong}) for wrong in [gone, Tuple((0,)), *hostile]]
    assert not any(said), said


@settings(deadline=None, max_examples=40, derandomize=True)
@pytest.mark.parametrize(("function", "name"), PLACES)
@given(wrong=anything)
def test_one_form_for_every_wrong_argument(function, name, wrong, complaint):
    call, right = FUNCTIONS[function]
    assert complaint(call, **right | {name: wrong}) is None


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_right_works_and_something_is_refused(function):
    call, right = FUNCTIONS[function]
    call(**right)
    with pytest.raises((TypeError, ValueError), match=r"^\w+: expected .* Received: "):
        call(**right | {next(iter(right)): object()})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Dilution(10**400, 1), r"rate: expected a number in \[0, 1\]\. Received: rate=1000"),
        (lambda: Dilution(0.5, 10**5000), "alpha: expected .* Received: alpha=<an integer of"),
        (lambda: quantal.key(0).indices(-1), "shape: expected a size of at least 0, or several"),
        (lambda: quantal.dilute(X, 0.5, 1.0, training="x"), "training: expected True or False"),
        (lambda: quantal.dilute(X, 0.5, 1.0, broadcast_dims=np.array([5])), "broadcast_dims: expected"),
        (lambda: quantal.dilute(X, 0.5, 1.0, broadcast_dims=True), "broadcast_dims: expected"),
        (lambda: quantal.dilute(np.random.default_rng(0), 0.5, 1.0), "x: expected a floating-point array"),
        (lambda: LAW.moment(10**400), "k: expected an integer of at least 0"),
        (lambda: LAW.ppf("0.5"), "u: expected numbers"),
        (lambda: table("x"), "dilution: expected a quantal.Dilution"),
        (lambda: reference.forward(np.ones((3, 2)), DRAWN), "x: expected an array that coefficients"),
    ],
)  # fmt: skip
def test_mistakes_that_were_once_something_else(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize(
    "wrong", ["", b"\x01", bytearray(b"\x01"), memoryview(b"\x01"), {}, {0: 1}, np.empty((0, 2)), [True],
              [np.True_], np.array(True), np.array([True]), np.empty(0), np.empty(0, bool)],
    ids=lambda wrong: type(wrong).__name__,  # the same in every process
)  # fmt: skip
def test_what_python_counts_out_as_integers_is_neither_shape_nor_axes(wrong):
    """What is accepted in silence has no error that could have the wrong form."""
    for name, call in (
        ("shape", lambda: quantal.key(0).bits(wrong)),
        ("shape", lambda: LAW.sample(wrong, np.random.default_rng(0))),
        ("broadcast_dims", lambda: quantal.dilute(X, 0.5, 1.0, broadcast_dims=wrong)),
        ("p_broadcast_dims", lambda: quantal.dilute(X, 0.5, 1.0, p_broadcast_dims=wrong)),
    ):
        with pytest.raises(TypeError, match=f"^{name}: expected .* Received: {name}="):
            call()


@pytest.mark.parametrize(
    "wrong", ["ab", ("a", "b"), (1.5, 2), (None, 2), [[1], [2]], (-1, 2), (True, 1)]
)
def test_what_is_no_shape_for_a_port(wrong):
    with pytest.raises((TypeError, ValueError), match=r"^shape: expected .* Received: shape="):
        coefficient_shapes(wrong)


def test_a_set_has_axes_but_is_no_shape():
    one, other = (
        quantal.dilute(X, 0.5, 1.0, rng=quantal.key(0), broadcast_dims=axes)
        for axes in ({0, 1}, (0, 1))
    )
    np.testing.assert_array_equal(one, other)
    with pytest.raises(TypeError, match="shape: expected a size of at least 0, or several"):
        quantal.key(0).bits({2, 3})


def test_a_time_is_no_number():
    for name in ("rate", "alpha"):
        with pytest.raises(TypeError, match=f"^{name}: expected a number"):
            Dilution(**{"rate": 0.5, "alpha": 1.0} | {name: np.timedelta64(1)})


def test_the_word_of_another_class_is_a_plain_one():
    class Words(enum.StrEnum):
        PQ = "pq"

    law = Dilution(0.5, 1.0, vary=Words.PQ)
    assert repr(law) == "Dilution(rate=0.5, alpha=1.0)"
    assert type(law.vary) is type(Site("", "", 0.5, 1.0, vary=Words.PQ).vary) is str


def test_what_is_masked_has_no_value():
    hidden = np.ma.masked_array([0.5, 0.5], [True, False])
    for function in (LAW.pdf, LAW.cdf, LAW.ppf):
        np.testing.assert_array_equal(np.isnan(function(hidden)), [True, False])
    assert on_numpy.dilute(np.ma.masked, 0.5, 1.0) is np.ma.masked


@pytest.mark.parametrize("wrong", [None, [None], [0.5, None], b"\x01", np.array([True], object)])
def test_nothing_is_no_number(wrong):
    for name, call in (("c", LAW.pdf), ("c", LAW.cdf), ("u", LAW.ppf)):
        with pytest.raises(TypeError, match=f"^{name}: expected numbers. Received: {name}="):
            call(wrong)


def test_a_draw_that_nobody_drew():
    made_up = reference.Draw(*"pmqc")
    with pytest.raises(TypeError, match=r"drawn: expected what reference\.draw returns"):
        reference.forward(X, made_up)


def test_counters_wrap_around():
    key, count = quantal.key(0), 2**15 + 2
    word0, word1 = key.blocks(2**64 - 1, count)
    again0, again1 = key.blocks(0, count - 1)
    np.testing.assert_array_equal(word0[1:], again0)
    np.testing.assert_array_equal(word1[1:], again1)


def test_numbers_of_every_kind_are_numbers():
    for half in (
        fractions.Fraction(1, 2),
        np.float16(0.5),
        np.array(0.5),
        np.array(0.5, np.float32),
    ):
        assert Dilution(half, 1) == Dilution(0.5, np.array(1)) == Dilution(0.5, 1)
    np.testing.assert_array_equal(quantal.key(0).bits(np.int64(2)), quantal.key(0).bits(2))
    np.testing.assert_array_equal(
        quantal.key(0).bits([np.uint8(2), 3]), quantal.key(0).bits((2, 3))
    )
    one, other = (
        quantal.dilute(X, 0.5, 1.0, rng=quantal.key(0), broadcast_dims=axes)
        for axes in (np.array([0, 1]), (0, 1))
    )
    np.testing.assert_array_equal(one, other)
