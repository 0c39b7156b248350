"""Classify the numbers of a JAX program: data, fine random numbers, or coarse ones, as in masks."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from quantal._watch import StackFrame, in_package
from quantal.jax._private_api import BERNOULLI, RADEMACHER, RANDINT, UNIFORM, frames_of
from quantal.sites import Site

__all__ = ["ADDING_TO", "COMPARISONS", "DATA", "HOST", "PLAIN", "WRITING", "Equation", "Kind"]
__all__ += ["MaskDraw", "Numbers", "captured", "is_data", "is_random", "join", "value_of"]

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
WRITING = ("scatter", "scatter_mul", "scatter_min", "scatter_max", "dynamic_update_slice")
ADDING_TO = ("scatter_add", "scatter_sub")
HOST = ("pure_callback", "io_callback")
_SOURCES = ("random_bits", "rng_bit_generator", "rng_uniform", "threefry2x32")
_ROUNDING = ("floor", "ceil", "round", "sign")
_SCALING = ("mul", "div", "integer_pow")
_SUMMING = ("reduce_sum", "reduce_prod", "cumsum", "cumprod", "cumlogsumexp")
_LIBRARIES = ("flax", "equinox", "haiku")

# What libraries do to a rate before they draw.
_ARITHMETIC: dict[str, Callable[..., float]] = {
    "sub": operator.sub,
    "convert_element_type": lambda number: number,
    "broadcast_in_dim": lambda number: number,
    "stop_gradient": lambda number: number,
    "copy": lambda number: number,
}


class MaskDraw(NamedTuple):
    """A mask that a program draws.

    Attributes
    ----------
    kind : str
        What drew it, such as ``"Dropout"``, ``"dot_product_attention_weights"`` or ``"bernoulli"``.
    rate : float
        With which rate, NaN where that cannot be told.
    frames : tuple of StackFrame
        Where, the innermost first.
    """

    kind: str
    rate: float
    frames: tuple[StackFrame, ...]

    @property
    def frame(self) -> StackFrame | None:
        """The line of the user's code that it comes from; None if it cannot be told."""
        outside = [frame for frame in self.frames if not in_package(frame, "jax", "quantal")]
        own = [frame for frame in outside if not in_package(frame, *_LIBRARIES)]
        return next(iter(own or outside), None)

    @property
    def site(self) -> Site:
        """The place that it stands for, named by file and line."""
        if self.frame is None:
            return Site("(unknown)", self.kind, self.rate, unreached="it draws a mask of its own")
        where = f"{Path(self.frame.file).name}:{self.frame.line}"
        reason = f"it draws a mask of its own in {self.frame.function}, {where}"
        return Site(where, self.kind, self.rate, unreached=reason)


class Kind(IntEnum):
    """What numbers are. What is computed from several kinds is of the highest of them."""

    PLAIN = 0
    LIST = 1  # from outside of the program, with one axis: data, or choices, or their probabilities
    RANDOM = 2  # fine: noise
    SCALED = 3  # fine, and of any size
    INDEX = 4  # one of many
    ORDER = 5  # a permutation
    FEW = 6  # one of some; these may be two
    COARSE = 7  # what a mask is made of
    ARRAY = 8  # from outside of the program: data, or a table
    DATA = 9


class Numbers(NamedTuple):
    """Some numbers of a program: what they are and, of coarse ones, which draws made them."""

    kind: Kind
    draws: tuple[MaskDraw, ...] = ()


PLAIN, DATA = Numbers(Kind.PLAIN), Numbers(Kind.DATA)
_INDEX = Numbers(Kind.INDEX)


def join(numbers: Iterable[Numbers]) -> Numbers:
    """Return what is computed of several numbers, one by one.

    Examples
    --------
    >>> join([PLAIN, _INDEX, DATA]).kind.name
    'DATA'
    """
    numbers = list(numbers)
    kind = max((each.kind for each in numbers), default=Kind.PLAIN)
    draws = dict.fromkeys(draw for each in numbers for draw in each.draws)
    return Numbers(kind, tuple(draws) if Kind.FEW <= kind <= Kind.COARSE else ())


def captured(array: Any) -> Numbers:
    """Return what a constant of a program is."""
    axes = getattr(array, "ndim", 0)
    return Numbers(Kind.ARRAY) if axes > 1 else Numbers(Kind.LIST) if axes else PLAIN


def is_random(numbers: Numbers) -> bool:
    """Return whether numbers are random, and not data."""
    return Kind.RANDOM <= numbers.kind <= Kind.COARSE


def is_data(numbers: Numbers) -> bool:
    """Return whether numbers are data, if they are combined with a mask."""
    return numbers.kind >= Kind.ARRAY or numbers.kind == Kind.LIST


def value_of(var: Any, values: Mapping[Any, float]) -> float:
    """Return a number of a program, NaN where it is not known in advance."""
    if hasattr(var, "val"):
        return float(var.val) if np.ndim(var.val) == 0 else math.nan
    return values.get(var, math.nan)


class Equation:
    """An operation of a program.

    Parameters
    ----------
    equation
        As JAX has it.
    inputs : list of Numbers
        What it is applied to.
    values : mapping
        Single numbers of the program that are known in advance.
    around : tuple of StackFrame
        Where the program is called.
    """

    def __init__(
        self,
        equation: Any,
        inputs: list[Numbers],
        values: Mapping[Any, float],
        around: tuple[StackFrame, ...],
    ) -> None:
        self.name: str = equation.primitive.name.replace("-", "_")
        self.params: Mapping[str, Any] = equation.params
        self.called: str | None = self.params.get("name")
        self.invars, self.outvars, self.inputs = equation.invars, equation.outvars, inputs
        self._equation, self._values, self._around = equation, values, around

    @functools.cached_property
    def frames(self) -> tuple[StackFrame, ...]:
        """The lines from which it comes, the innermost first."""
        frames = tuple(frames_of(self._equation))
        known = any(not in_package(frame, "jax", "quantal") for frame in frames)
        return frames if known else frames + self._around

    def draw(self, kept: float = math.nan) -> MaskDraw:
        """Return the mask that is made here, with the probability to keep a unit."""
        if self.name in HOST:
            return MaskDraw(self.name, math.nan, self.frames)
        inner = next((f for f in self.frames if not in_package(f, "jax")), None)
        if inner is None or not in_package(inner, *_LIBRARIES):
            return MaskDraw("bernoulli", math.nan, self.frames)
        # The libraries ask for the probability to keep a unit; it comes as a float32.
        kind = inner.function.partition(".")[0].removesuffix("_impl").replace("__call__", "Dropout")
        return MaskDraw(kind, float(f"{1 - kept:.6g}"), self.frames)

    def value(self) -> float:
        """Return the number that it makes, NaN where it is not known in advance."""
        if self.name not in _ARITHMETIC:
            return math.nan
        return _ARITHMETIC[self.name](*(value_of(var, self._values) for var in self.invars))

    def sampled(self) -> Numbers | None:
        """Return what a function of ``jax.random`` draws; None if this is a call of another."""
        given = join(self.inputs)
        if self.called == BERNOULLI:
            # With a probability that is data: a sample of it.
            kept = value_of(self.invars[1], self._values)
            return given if given.kind == Kind.DATA else Numbers(Kind.COARSE, (self.draw(kept),))
        if self.called is None or not hasattr(jax.random, self.called.lstrip("_")):
            return None
        if not self._is_of_jax_random():
            return None
        if given.kind >= Kind.ARRAY:
            return given if _is_float(self.outvars[0]) else None
        if self.called == RANDINT:
            return Numbers(Kind.COARSE, (self.draw(),)) if self._span() == 2 else _INDEX
        if _is_float(self.outvars[0]):
            scaled = self.called == UNIFORM and self._span() != 1
            return Numbers(Kind.SCALED if scaled else Kind.RANDOM)
        return _INDEX if self.called == RADEMACHER else None

    def counted(self) -> Numbers | None:
        """Return what functions of ``jax.numpy`` that count make of random numbers.

        They are known by their names, since their operations do not show what they return.
        """
        numbers = join(self.inputs)
        if not is_random(numbers):
            return None
        if self.called == "remainder" and not _is_float(self.outvars[0]):
            return self._coarse(numbers) if value_of(self.invars[1], self._values) == 2 else _INDEX
        if self.called == "searchsorted":  # of one bound, or of what sums up to 1
            return self._coarse() if self.invars[0].aval.shape[0] <= 2 else _INDEX
        if self.called == "heaviside":
            return self._coarse(numbers)
        if self.called == "floor_divide" and numbers.kind <= Kind.SCALED:
            return self._rounded(numbers) if _is_float(self.outvars[0]) else _INDEX
        return None

    def writes(self) -> tuple[Numbers, Numbers, Numbers]:
        """Return of what writes into an array: the array, the indices, and what is written."""
        target, *others = self.inputs
        if self.name == "dynamic_update_slice":
            return target, join(others[1:]), others[0]
        return target, others[0], others[1]

    def is_product(self) -> bool:
        """Return whether it multiplies number by number, as an einsum may."""
        return self.name == "dot_general" and not any(self.params["dimension_numbers"][0])

    def results(self) -> list[Numbers]:
        """Return what it makes."""
        if self.name == "sort" and self.inputs[0].kind < Kind.ARRAY:
            keys, order = self.inputs[0], Numbers(Kind.ORDER)
            others = zip(self.inputs[1:], self.outvars[1:], strict=True)
            return [keys, *(self._taken(each, order, var) for each, var in others)]
        result = self._result()
        if self.name == "top_k" and is_random(result):
            return [result, Numbers(Kind.ORDER)]
        return [result] * len(self.outvars)

    def _result(self) -> Numbers:
        if self.name in _SOURCES:
            return Numbers(Kind.RANDOM)
        if self.name in COMPARISONS:
            return self._compared()
        if self.name == "select_n":
            return self._selected()
        if self.name in ("gather", "dynamic_slice"):
            return self._taken(self.inputs[0], join(self.inputs[1:]), self.outvars[0])
        if self.name in (*WRITING, *ADDING_TO):
            target, indices, update = self.writes()
            if is_random(indices) and max(target.kind, update.kind) < Kind.ARRAY:
                return self._coarse(indices)
            return join((target, update))
        if self.name == "is_finite":
            return PLAIN
        numbers = join(self.inputs)
        return self._made_of_random(numbers) if is_random(numbers) else numbers

    def _compared(self) -> Numbers:
        numbers = join(self.inputs)
        random = join(each for each in self.inputs if is_random(each))
        if numbers.kind == Kind.DATA or not is_random(random):
            return numbers
        if self.invars[0] is self.invars[1]:  # whether it is NaN
            return PLAIN
        one_hot = random.kind == Kind.INDEX and self.name in ("eq", "ne")
        return self._coarse(random, few=one_hot and all(map(_has_axes, self.invars)))

    def _made_of_random(self, numbers: Numbers) -> Numbers:
        """Return what is made of random numbers that are no data."""
        name, kind = self.name, numbers.kind
        if name in ("argmax", "argmin"):
            (axis,) = self.params["axes"]
            return self._coarse() if self.invars[0].aval.shape[axis] == 2 else _INDEX
        if name in _SUMMING:
            return _INDEX if kind >= Kind.FEW else numbers
        if self._becomes(np.bool_) or self._leaves_two():
            return self._coarse(numbers)
        if kind > Kind.SCALED:
            return numbers
        if name in _ROUNDING or (self._becomes(np.integer) and _is_float(self.invars[0])):
            return self._rounded(numbers)
        if name == "rem" and not _is_float(self.outvars[0]):
            return _INDEX
        return Numbers(Kind.SCALED) if name in _SCALING else numbers

    def _rounded(self, numbers: Numbers) -> Numbers:
        """Return the rounding of random numbers: of scaled ones, it is one of many."""
        return self._coarse() if numbers.kind == Kind.RANDOM else _INDEX

    def _selected(self) -> Numbers:
        """Return what is selected by a condition among some cases."""
        condition, *given = self.inputs
        cases = join(given)
        if not is_random(condition) or cases.kind >= Kind.ARRAY:
            return join((condition, cases))
        # All of it is random: leaky noise, or samples that replace rejected ones. It stays fine.
        return cases if Kind.RANDOM <= cases.kind <= Kind.INDEX else join((condition, cases))

    def _taken(self, table: Numbers, index: Numbers, taken: Any) -> Numbers:
        """Return what is taken from a table."""
        boolean = taken.aval.dtype == np.bool_
        if not is_random(index) or is_random(table) or table.kind == Kind.DATA:
            return table if is_random(index) else join((table, index))
        if table.kind == Kind.ARRAY and not boolean:
            return table
        if not boolean and (index.kind == Kind.INDEX or not _is_float(taken)):
            return index
        return self._coarse(index)

    def _coarse(self, of: Numbers = PLAIN, few: bool = False) -> Numbers:
        """Return coarse numbers, made of others."""
        if of.draws:
            return of
        # If jax.random itself compares, the outcome is part of some other distribution.
        few = few or self._is_of_jax_random()
        return Numbers(Kind.FEW if few else Kind.COARSE, (self.draw(),))

    def _leaves_two(self) -> bool:
        """Return whether one of two numbers is left of random bits."""
        if self.name not in ("and", "rem", "shift_right_logical") or _is_float(self.outvars[0]):
            return False
        bits = self.outvars[0].aval.dtype.itemsize * 8
        last = {"and": 1, "rem": 2, "shift_right_logical": bits - 1}[self.name]
        return any(value_of(var, self._values) == last for var in self.invars)

    def _becomes(self, dtype: type) -> bool:
        converts = self.name == "convert_element_type"
        return converts and np.issubdtype(self.params["new_dtype"], dtype)

    def _span(self) -> float:
        """Return the distance between the bounds of a sampler, which it takes after the key."""
        low, high = (value_of(var, self._values) for var in self.invars[1:3])
        return high - low

    def _is_of_jax_random(self) -> bool:
        """Return whether the operation is part of ``jax.random``, rather than of its caller."""
        return any("random" in frame.file for frame in self._frames_in_jax())

    def _frames_in_jax(self) -> Iterator[StackFrame]:
        for frame in self.frames:
            if not in_package(frame, "jax"):
                return
            yield frame


def _is_float(var: Any) -> bool:
    return bool(jnp.issubdtype(var.aval.dtype, jnp.floating))


def _has_axes(var: Any) -> bool:
    return bool(getattr(var.aval, "ndim", 0))
