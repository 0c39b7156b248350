"""What the tests of errors share in every framework: wrong arguments, and the form of an error."""

import decimal
import enum
import fractions
import math
import re

import numpy as np
import pytest

import quantal

FORM = re.compile(r"\w+: expected .+ Received: .", re.DOTALL)


class Raises:
    """Raises whatever is done with it, but not when it is only looked at."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def raises(self, *_):
        raise RuntimeError

    __repr__ = __float__ = __index__ = __bool__ = __len__ = __iter__ = __array__ = raises
    __eq__ = __call__ = raises
    __hash__ = None


class Forever:
    def __iter__(self):
        return iter(int, 1)


class Whole(int):
    def __float__(self):
        raise ZeroDivisionError

    def __index__(self):
        raise ZeroDivisionError


class Real(float):
    def __float__(self):
        raise ZeroDivisionError


class Pretends:
    """Has the attributes of an array, and nothing of what they promise."""

    shape, ndim, dtype = (), 0, np.dtype(float)


class Text(str):
    def __eq__(self, other):
        raise ZeroDivisionError

    __hash__ = __eq__


class Number(enum.IntEnum):
    FIVE = 5


class Endless:
    def __repr__(self):
        return "x" * 10**6


class FromNowhere:
    __module__ = None


@pytest.fixture
def hostile():
    """Return values that are wrong nearly everywhere; where one is right, it is of a small size."""
    return [
        Text("pq"), np.timedelta64(1), np.ma.masked, np.empty(0, bool),
        None, True, False, np.True_, "", "x", "0.5", b"1", bytearray(2), memoryview(b"12"),
        -1, 7, 1.5, -0.0, math.inf, -math.inf, math.nan, 1j, 2**64, 10**400, -(10**400), 10**5000,
        fractions.Fraction(1, 3), fractions.Fraction(10**400), decimal.Decimal("0.5"),
        Whole(2), Real(0.5), np.longdouble("0.5"), np.float16(0.5), np.int64(2), np.uint8(1),
        np.datetime64("2020-01-01"), np.str_("x"), np.array(0.5), np.array(2), np.array(-0.0),
        np.array(math.nan), np.array(True), np.array(1j), np.array([0, 1]), np.array([[0, 1]]),
        np.array([5]), np.array(["x"]), np.array([None]), np.array([object()]), np.array(None),
        np.ones((2, 3), bool), np.ones((2, 3)), np.empty((0, 3)), np.array([(1, 2)], "i4,i4"),
        np.ma.masked_array([1.0, 2.0], [True, False]), [], (), {}, {"a": 1}, set(), frozenset({1}),
        (1.5,), ("a", None), (0, 0), [[1], [2, 3]], [10**400], [None], ["x"], [True], range(3),
        iter([0]), (n for n in (0, 1)), slice(1), Ellipsis, NotImplemented, object(), object, type,
        len, lambda: 0, lambda x: x, Raises(), Forever(), Pretends(), FromNowhere(), ValueError(),
        np.random, np.random.default_rng(0), np.random.RandomState(0), np.dtype(float), np.float32,
        quantal.Dilution(0.5, 1.0), quantal.key(1), quantal,
        (0, 2**70), (0,) * 40, np.ones((1,) * 64), Number.FIVE, Endless(), decimal.Decimal("sNaN"),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def complaint():
    """Return a function that says what is wrong with how a call fails; None if nothing is.

    It may succeed, or raise a TypeError or a ValueError that names the argument, what was expected
    and what was received, at a length that can be read.
    """

    def of(call, *args, **kwargs):
        try:
            with np.errstate(all="ignore"):
                call(*args, **kwargs)
        except Exception as error:
            text = str(error)
            house = isinstance(error, TypeError | ValueError) and FORM.match(text)
            return None if house and len(text) < 1000 else f"{type(error).__name__}: {text[:300]}"
        return None

    return of
