"""The masks that TensorFlow draws without QSD. QSD makes none from these random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from quantal._watch import MaskFinder, NativeMask
from quantal.tensorflow._private_api import each_operation

__all__ = ["native_masks"]

_UNIFORM = (
    *("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2", "StatefulUniform"),
)
_NORMAL = (
    *("RandomStandardNormal", "StatelessRandomNormal", "StatelessRandomNormalV2"),
    *("StatefulStandardNormal", "StatefulStandardNormalV2"),
)
_INTEGERS = (
    *("RandomUniformInt", "StatelessRandomUniformInt", "StatelessRandomUniformIntV2"),
    "StatefulUniformInt",
)
_BINOMIAL = ("RandomBinomial", "StatelessRandomBinomial", "StatefulRandomBinomial")
_HOST = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # Python code, where nothing is seen


def native_masks(run: Callable[[], Any]) -> list[NativeMask]:
    """Run a function, and return every mask that is drawn, or put into a graph, meanwhile.

    Examples
    --------
    >>> [mask.rate for mask in native_masks(lambda: tf.nn.dropout(tf.ones((2, 3)), 0.25))]
    [0.25]
    """
    drawn = (*_BINOMIAL, *_HOST, *_INTEGERS)
    uniform = _finder(_UNIFORM, _number)  # whose bound is a rate
    other = _finder((*_NORMAL, *_INTEGERS, "RandomShuffle"), _unknown, drawn)

    def see(*operation: Any) -> None:
        uniform.see(*operation)
        other.see(*operation)

    with each_operation(see):
        run()
    return uniform.found + other.found


def _finder(
    random: tuple[str, ...], bound: Callable[[Any], float], drawn: tuple[str, ...] = ()
) -> MaskFinder:
    """Return what finds the masks that are made from some random numbers, or drawn directly.

    ``bound`` returns the rate of a mask that keeps the numbers above a bound.
    """
    return MaskFinder(
        random=random,
        passed_on=("AddV2", "Add", "Sub", "Mul", "RealDiv", "Neg", "Cast", "Identity", "Reshape",
                   "ExpandDims", "FloorMod"),
        masks={
            **dict.fromkeys(("GreaterEqual", "Greater"), lambda given: _compared(given, bound)),
            **dict.fromkeys(("Less", "LessEqual"), lambda given: _compared(given, bound, below=1)),
            **dict.fromkeys(("Floor", "Round", "Rint", "Sign", "Equal", "NotEqual"), _unknown),
            **dict.fromkeys((*_BINOMIAL, *_HOST), _unknown_if_no_data),
            **dict.fromkeys(_INTEGERS, _one_of_two),
        },
        drawn=drawn,
        plain=_is_plain,
    )  # fmt: skip


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor is a number, or a list of such, as of rates: data have more axes."""
    return tensor.shape.rank is not None and tensor.shape.rank < 2


def _compared(given: Any, bound: Callable[[Any], float], below: int = 0) -> float | None:
    """Return the rate of a mask that keeps what is above a bound, or below it."""
    numbers, other = given
    if numbers.dtype.is_integer and _number(other) == 0:
        return None  # how TensorFlow recognises an index that counts from the end
    return abs(below - bound(other))


def _unknown(_: Any) -> float:
    return math.nan


def _unknown_if_no_data(inputs: Any) -> float | None:
    """Return NaN for a mask that is drawn without data; None for a sample of data."""
    return math.nan if all(map(_is_plain, inputs)) else None


def _one_of_two(inputs: Any) -> float | None:
    """Return NaN for many integers, each one of two; others have to be compared first."""
    shape, *_, low, high = inputs
    several = shape.shape.rank == 1 and shape.shape[0] != 0
    return math.nan if several and _number(high) - _number(low) == 2 else None


def _number(tensor: Any) -> float:
    value = tf.get_static_value(tensor)
    return float(value) if value is not None and value.size == 1 else math.nan
