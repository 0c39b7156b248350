"""The masks that TensorFlow draws without QSD. QSD compares no such random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from quantal._watch import MaskFinder, NativeMask
from quantal.tensorflow._private_api import each_operation

__all__ = ["native_masks"]


def native_masks(run: Callable[[], Any]) -> list[NativeMask]:
    """Run a function, and return every mask that is drawn, or put into a graph, meanwhile.

    Examples
    --------
    >>> [mask.rate for mask in native_masks(lambda: tf.nn.dropout(tf.ones((2, 3)), 0.25))]
    [0.25]
    """
    binomial = ("StatelessRandomBinomial", "StatefulRandomBinomial", "RandomBinomial")
    finder = MaskFinder(
        random=("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2",
                "StatefulUniform"),
        passed_on=("AddV2", "Add", "Sub", "Mul", "Cast", "Identity", "Reshape", "ExpandDims"),
        masks={
            "GreaterEqual": lambda inputs: _number(inputs[1]),
            "Greater": lambda inputs: _number(inputs[1]),
            "Less": lambda inputs: 1 - _number(inputs[1]),
            "LessEqual": lambda inputs: 1 - _number(inputs[1]),
            **dict.fromkeys(("Floor", "Round", "Rint"), lambda _: math.nan),
            **dict.fromkeys(binomial, lambda _: math.nan),
        },
        drawn=binomial,
    )  # fmt: skip
    with each_operation(finder.see):
        run()
    return finder.found


def _number(tensor: Any) -> float:
    value = tf.get_static_value(tensor)
    return float(value) if value is not None and value.size == 1 else math.nan
