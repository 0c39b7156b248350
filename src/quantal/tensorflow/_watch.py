"""The masks that TensorFlow draws without QSD: random numbers are followed through its operations.

A mask is drawn as one, or made by comparing or rounding random numbers. Numbers with which data are
combined are followed no further: noise is no mask. QSD compares no such random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import tensorflow as tf

from quantal._watch import NativeMask, short, stack_frames
from quantal.tensorflow._private_api import each_operation

__all__ = ["native_masks"]


class _Kind(IntEnum):
    """What random numbers are. What is computed from several kinds is of the highest of them."""

    UNIFORM = 1  # between 0 and 1, so that a bound is a rate
    FINE = 2
    SCALED = 3  # of any size: their rounding is one of many
    INDEX = 4  # whole numbers


_DRAWN = {
    **dict.fromkeys(
        ("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2", "StatefulUniform"),
        _Kind.UNIFORM,
    ),
    **dict.fromkeys(
        ("RandomStandardNormal", "StatelessRandomNormal", "StatelessRandomNormalV2",
         "StatefulStandardNormal", "StatefulStandardNormalV2", "TruncatedNormal",
         "StatelessTruncatedNormal", "StatelessTruncatedNormalV2", "StatefulTruncatedNormal",
         "RandomGamma", "StatelessRandomGammaV2", "StatelessRandomGammaV3"),
        _Kind.FINE,
    ),
    "RandomShuffle": _Kind.INDEX,
}  # fmt: skip
_INTEGERS = (
    *("RandomUniformInt", "StatelessRandomUniformInt", "StatelessRandomUniformIntV2"),
    "StatefulUniformInt",
)
_BINOMIAL = ("RandomBinomial", "StatelessRandomBinomial", "StatefulRandomBinomial")
_HOST = ("PyFunc", "PyFuncStateless", "EagerPyFunc")  # Python code, where nothing is seen
# How many numbers a comparison keeps: those below a bound, or those above it.
_COMPARED = {"Less": 1, "LessEqual": 1, "Greater": 0, "GreaterEqual": 0}
_TOLD_APART = ("Sign", "Equal", "NotEqual")
_ROUNDED = ("Floor", "Ceil", "Round", "Rint", "FloorDiv")
_SHIFTED = ("AddV2", "Add", "Sub")
_SCALED = ("Mul", "RealDiv")
_RESHAPED = (
    *("Identity", "Reshape", "ExpandDims", "Squeeze", "Transpose", "Tile", "BroadcastTo"),
    *("ConcatV2", "Pack", "Unpack", "Slice", "StridedSlice", "Split", "SplitV", "ReverseV2"),
)
_CHANGED = (
    *("Neg", "Abs", "Square", "Sqrt", "Rsqrt", "Pow", "Exp", "Expm1", "Log", "Log1p", "Sigmoid"),
    *("Tanh", "Softplus", "Erf", "Maximum", "Minimum", "SquaredDifference", "FloorMod"),
)


def native_masks(run: Callable[[], Any]) -> list[NativeMask]:
    """Run a function, and return every mask that is drawn, or put into a graph, meanwhile.

    Examples
    --------
    >>> [mask.rate for mask in native_masks(lambda: tf.nn.dropout(tf.ones((2, 3)), 0.25))]
    [0.25]
    """
    follower = _Follower()
    with each_operation(follower.see):
        run()
    return follower.found


class _Follower:
    """Follows random numbers from operation to operation."""

    def __init__(self) -> None:
        self.found: list[NativeMask] = []
        # By identity; the tensors are kept alive for that.
        self._kinds: dict[int, tuple[_Kind, Any]] = {}
        self._numbers: dict[int, tuple[float, Any]] = {}

    def see(self, name: str, inputs: Any, outputs: Any) -> None:
        """Take note of an operation."""
        inputs, outputs = list(inputs), list(outputs)
        kinds = [self._kinds.get(id(each), (None, None))[0] for each in inputs]
        random = [kind for kind in kinds if kind is not None]
        others = [each for kind, each in zip(kinds, inputs, strict=True) if kind is None]
        with_data = not all(map(_is_plain, others))
        if name in (*_BINOMIAL, *_HOST):
            if not with_data:  # what is drawn with data is a sample of these
                self._found()
        elif name in _INTEGERS:
            if self._is_mask_of_two(inputs):
                self._found()
            self._follow(outputs, _Kind.INDEX)
        elif name in _DRAWN:
            if name != "RandomShuffle" or not with_data:
                self._follow(outputs, _DRAWN[name])
        elif not random:
            if name == "Sub":  # of the bounds of uniform numbers
                low, high = map(self._number, inputs)
                self._numbers[id(outputs[0])] = (low - high, outputs[0])
        elif not with_data:
            self._see_random(name, max(random), inputs, others, outputs)

    def _see_random(
        self, name: str, kind: _Kind, inputs: list[Any], others: list[Any], outputs: list[Any]
    ) -> None:
        """Take note of an operation on random numbers."""
        if name in _COMPARED:
            bound = self._number(others[0]) if others else math.nan
            # Whether an index counts from the end is told by comparing it.
            if not (kind == _Kind.INDEX and inputs[0].dtype.is_integer and bound == 0):
                rate = abs(_COMPARED[name] - bound) if kind == _Kind.UNIFORM else math.nan
                self._found(rate)
        elif name in _TOLD_APART or (name == "Cast" and outputs[0].dtype.is_bool):
            self._found()
        elif name in _ROUNDED or (name == "Cast" and outputs[0].dtype.is_integer):
            if kind < _Kind.SCALED:
                self._found()
            else:
                self._follow(outputs, _Kind.INDEX)
        elif name in (*_RESHAPED, "Cast"):
            self._follow(outputs, kind)
        elif name in (*_SHIFTED, *_SCALED):
            neutral = 0 if name in _SHIFTED else 1
            if not others or self._number(others[0]) != neutral:
                kind = max(kind, _Kind.FINE if name in _SHIFTED else _Kind.SCALED)
            self._follow(outputs, kind)
        elif name in _CHANGED:
            self._follow(outputs, max(kind, _Kind.FINE))
        elif name == "TopKV2":
            self._follow(outputs[:1], kind)
            self._follow(outputs[1:], _Kind.INDEX)

    def _follow(self, tensors: list[Any], kind: _Kind) -> None:
        self._kinds.update({id(each): (kind, each) for each in tensors})

    def _found(self, rate: float = math.nan) -> None:
        self.found.append(NativeMask(short(rate), stack_frames()))

    def _is_mask_of_two(self, inputs: list[Any]) -> bool:
        """Return whether many integers are drawn of two; others have to be compared first."""
        shape, *_, low, high = inputs
        several = shape.shape.rank == 1 and shape.shape[0] != 0
        return several and self._number(high) - self._number(low) == 2

    def _number(self, tensor: Any) -> float:
        if id(tensor) in self._numbers:
            return self._numbers[id(tensor)][0]
        value = tf.get_static_value(tensor)
        plain = value is not None and value.size == 1 and value.dtype.kind in "fiu"
        return float(value.reshape(())) if plain else math.nan


def _is_plain(tensor: Any) -> bool:
    """Return whether a tensor is a number, or a list of such, as of rates: data have more axes."""
    return tensor.shape.rank is not None and tensor.shape.rank < 2
