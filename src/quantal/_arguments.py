"""Checks of arguments: whatever is wrong with one, the error has the same form.

A message says the argument, what was expected and what was received. Adapters use these functions
too, so that the same mistake reads the same in every framework.
"""

from __future__ import annotations

import itertools
import math
import numbers
import operator
from collections.abc import Iterable, Mapping, Set
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from quantal._errors import wrong_type, wrong_value

__all__ = [
    "array",
    "axes",
    "axes_as_given",
    "axis_numbers",
    "broadcasts",
    "flag",
    "floats",
    "function_or_none",
    "instance",
    "integer",
    "number",
    "shape",
    "word",
]

_Kind = TypeVar("_Kind")

# Python iterates over these as integers, or as nothing if empty, but that is never what is meant.
_NO_NUMBERS = (str, bytes, bytearray, memoryview, Mapping)

# The kinds of arrays whose elements may be integers; "" stands for what is not an array.
_INTEGERS = ("", "int", "uint", "object")


def number(name: str, value: Any, expected: str) -> float:
    """Return a real number as a float; an array without axes counts as the number in it.

    Examples
    --------
    >>> number("rate", "x", "a number in [0, 1]")
    Traceback (most recent call last):
    TypeError: rate: expected a number in [0, 1]. Received: rate='x'
    """
    if type(value) is float:  # nearly always, and a layer may ask in every step
        return value
    try:
        if not _is_number(value):
            raise TypeError
        return float(value)
    except OverflowError:
        raise wrong_value(name, expected, value) from None
    except Exception:  # also a number that is known only when a compiled function runs
        raise wrong_type(name, expected, value) from None


def integer(name: str, value: Any, expected: str, low: int, below: int) -> int:
    """Return an integer of any kind, low ≤ n < below, as Python's own.

    Examples
    --------
    >>> integer("n", np.int64(3), "an integer in [0, 8)", 0, 8)
    3
    """
    try:
        if _is_boolean(value):
            raise TypeError
        found = operator.index(value)
    except Exception:  # a TypeError, or what somebody's own class raises
        raise wrong_type(name, expected, value) from None
    if not low <= found < below:
        raise wrong_value(name, expected, value)
    return found


def flag(name: str, value: Any) -> bool:
    """Return a truth value: nothing but True or False will do.

    Examples
    --------
    >>> flag("training", "no")
    Traceback (most recent call last):
    TypeError: training: expected True or False. Received: training='no'
    """
    if not _is_a(value, (bool, np.bool_)):
        raise wrong_type(name, "True or False", value)
    return bool(value)


def word(name: str, value: Any, known: tuple[str, ...]) -> str:
    """Return one of a few words, as a plain string: a subclass may have any == of its own.

    Examples
    --------
    >>> word("vary", np.str_("pq"), ("pq", "p", "q"))
    'pq'
    >>> word("vary", "r", ("pq", "p", "q"))
    Traceback (most recent call last):
    ValueError: vary: expected 'pq', 'p' or 'q'. Received: vary='r'
    """
    plain = str.__str__(value) if _is_a(value, str) else None
    if plain not in known:
        *others, last = map(repr, known)
        raise wrong_value(name, f"{', '.join(others)} or {last}", value)
    return plain


def instance(name: str, value: Any, kind: type[_Kind] | tuple[type, ...], expected: str) -> _Kind:
    """Return a value of a certain class."""
    if not _is_a(value, kind):
        raise wrong_type(name, expected, value)
    return value  # type: ignore[no-any-return]


def function_or_none(name: str, value: Any) -> None:
    """Refuse what is neither a function nor None."""
    if not (value is None or callable(value)):
        raise wrong_type(name, "a function or None", value)


def shape(name: str, value: Any) -> tuple[int, ...]:
    """Return the shape of an array, given as one size or as a sequence of them.

    Examples
    --------
    >>> shape("shape", np.int64(2)), shape("shape", [2, 3])
    ((2,), (2, 3))
    >>> shape("shape", -1)
    Traceback (most recent call last):
    ValueError: shape: expected a size of at least 0, or several. Received: shape=-1
    """
    expected = "a size of at least 0, or several"
    if _is_a(value, Set):  # which has no order
        raise wrong_type(name, expected, value)
    sizes = _integers(name, value, expected, 64)
    # NumPy can address no more, with eight bytes an element; an axis of size 0 does not help.
    if any(size < 0 for size in sizes) or math.prod(filter(None, sizes)) >= 2**60:
        raise wrong_value(name, expected, value)
    return tuple(sizes)


def axes(name: str, value: Any, ndim: int) -> frozenset[int]:
    """Return axes of an array, counted from the front; each must exist and be named once.

    Examples
    --------
    >>> sorted(axes("broadcast_dims", (0, -1), 3))
    [0, 2]
    """
    expected = f"distinct axes of an array with {ndim} dimensions"
    listed = _integers(name, value, expected, ndim + 1)
    counted = frozenset(axis % ndim for axis in listed if -ndim <= axis < ndim)
    if len(counted) < len(listed):
        raise wrong_value(name, expected, value)
    return counted


def axis_numbers(name: str, value: Any) -> tuple[int, ...]:
    """Return axes as integers; whether an array has them will be seen when there is one.

    Examples
    --------
    >>> axis_numbers("broadcast_dims", np.array([0, -1])), axis_numbers("broadcast_dims", 2)
    ((0, -1), (2,))
    """
    if type(value) is tuple and not value:  # nearly always
        return value
    expected = "an axis or a tuple of axes"
    found = _integers(name, value, expected, 64)
    if any(abs(axis) >= 2**31 for axis in found):
        raise wrong_value(name, expected, value)
    return tuple(found)


def axes_as_given(name: str, value: Any) -> int | tuple[int, ...]:
    """Return one axis as an integer, which prints as it was written, and several as a tuple.

    Examples
    --------
    >>> axes_as_given("broadcast_dims", 2), axes_as_given("broadcast_dims", [2])
    (2, (2,))
    """
    numbers = axis_numbers(name, value)
    return numbers[0] if isinstance(value, int) else numbers


def floats(name: str, value: Any, expected: str = "numbers") -> NDArray[np.float64]:
    """Return numbers, in whatever nesting, as an array of float64."""
    try:
        if isinstance(value, np.ma.MaskedArray):  # what is masked has no value
            value = np.ma.filled(value.astype(np.float64), np.nan)
        given = np.asarray(value)
        if given.dtype.kind not in "fiuO" or isinstance(value, _NO_NUMBERS):
            raise TypeError
        # An O is a Fraction, or a large integer; of a None NumPy would make a NaN.
        if given.dtype.kind == "O" and not all(_is_real(each) for each in given.flat):
            raise TypeError
        return given.astype(np.float64)
    except Exception:  # whatever an object of somebody's own class raises
        raise wrong_type(name, expected, value) from None


def array(name: str, value: Any, expected: str) -> NDArray[Any]:
    """Return an array of NumPy with floating-point numbers."""
    if not _is_a(value, (np.ndarray, np.generic)):
        raise wrong_type(name, expected, type(value))
    if not np.issubdtype(value.dtype, np.floating):
        raise wrong_type(name, expected, value.dtype)
    return value  # type: ignore[no-any-return]


def broadcasts(smaller: tuple[int, ...], larger: tuple[int, ...]) -> bool:
    """Return whether an array of one shape can be used with one of another, which stays."""
    # Not by NumPy's own function, which stops at 32 axes.
    beside = larger[len(larger) - len(smaller) :]
    return len(smaller) <= len(larger) and all(
        own in (1, other) for own, other in zip(smaller, beside, strict=True)
    )


def _integers(name: str, value: Any, expected: str, most: int) -> list[int]:
    """Return one or several integers; of more than ``most``, only one more."""
    try:
        ndim = getattr(value, "ndim", 1)
        single = not isinstance(value, Iterable) or ndim == 0
        # An empty array has no elements to look at, but it has a kind.
        if isinstance(value, _NO_NUMBERS) or ndim > 1 or _kind(value) not in _INTEGERS:
            raise TypeError
        listed = [value] if single else list(itertools.islice(value, most + 1))
        if any(_is_boolean(each) for each in listed):
            raise TypeError
        found = [operator.index(each) for each in listed]
    except Exception:  # a TypeError, or what an array of another framework raises
        raise wrong_type(name, expected, value) from None
    if len(found) > most:
        raise wrong_value(name, expected, value)
    return found


def _is_number(value: Any) -> bool:
    """Return whether a value is a real number, or an array without axes that holds one."""
    if _is_boolean(value):  # a Real to Python, but rate=True is always a mistake
        return False
    if isinstance(value, numbers.Real):  # a time, too, to NumPy
        return not isinstance(value, np.timedelta64)
    return getattr(value, "shape", None) == () and _kind(value) in ("float", "int", "uint")


def _is_a(value: Any, kind: Any) -> bool:
    """Return whether a value is of a class; False if asking raises, as for a dead weak proxy."""
    try:
        return isinstance(value, kind)
    except Exception:
        return False


def _is_boolean(value: Any) -> bool:
    """Return whether a value is True or False, also as an array: integers to Python and torch."""
    if type(value) is int:  # nearly always
        return False
    return isinstance(value, bool | np.bool_) or _kind(value) == "bool"


def _is_real(value: Any) -> bool:
    return isinstance(value, numbers.Real | Decimal) and not isinstance(value, bool)


def _kind(value: Any) -> str:
    """Return the kind of an array's numbers, by the name that every framework has for it."""
    dtype = getattr(value, "dtype", "")
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2].rstrip("0123456789")
    return "float" if name == "bfloat" else name
