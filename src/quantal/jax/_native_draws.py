"""The masks that a program of JAX draws.

Whatever the source looks like, a mask is made of random numbers by a comparison with something that
is no data, or by rounding; the draws of QSD are calls of one function, known by its name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from quantal._watch import StackFrame, in_package
from quantal.jax._functional import DILUTE
from quantal.jax._private_api import frames_of
from quantal.sites import Site

__all__ = ["QSD", "MaskDraw", "each_line_once", "every_draw", "native_draws"]

_SOURCES = ("random_bits", "rng_bit_generator", "rng_uniform", "threefry2x32")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# What comes of random numbers by these is an order, a choice or a sum of them, but no mask.
_ENDS = ("sort", "argmax", "argmin", "rem", "while", "scan", "dot_general", "top_k")
_ROUNDING = ("floor", "ceil", "round", "sign")
# Of random numbers that were scaled before, rounding makes a choice among many: an index.
_SCALING = ("mul", "div", "integer_pow")
_LIBRARIES = ("flax", "equinox", "haiku")

# What libraries do to a rate before they draw.
_ARITHMETIC: dict[str, Callable[..., float]] = {
    "sub": operator.sub,
    "convert_element_type": lambda number: number,
    "stop_gradient": lambda number: number,
    "copy": lambda number: number,
}

_DATA, _SCALED, _RANDOM, _PLAIN = "data", "scaled", "random", "plain"
QSD = "QSD"
"""The kind of a draw that is QSD's."""


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


def native_draws(run: Callable[..., Any], *args: Any) -> list[MaskDraw]:
    """Trace a function, and return the masks that it draws without QSD, each line of code once.

    Examples
    --------
    >>> import quantal.jax
    >>> def run(key, x):
    ...     x = quantal.jax.dilute(x, 0.5, 1.0, key=key)
    ...     return x * jax.random.bernoulli(key, 0.9, x.shape)
    >>> [draw.kind for draw in native_draws(run, jax.random.key(0), jax.numpy.ones((2, 3)))]
    ['bernoulli']
    """
    return each_line_once(every_draw(run, *args))


def each_line_once(draws: Iterable[MaskDraw]) -> list[MaskDraw]:
    """Return those of the draws that are not QSD's."""
    native = (draw for draw in draws if draw.kind != QSD)
    return list({(draw.frame, draw.kind, str(draw.rate)): draw for draw in native}.values())


def every_draw(run: Callable[..., Any], *args: Any) -> Iterator[MaskDraw]:
    """Trace a function, and walk through the masks that it draws, those of QSD among them."""
    program = jax.make_jaxpr(run)(*args).jaxpr
    kinds = [_DATA if getattr(var.aval, "ndim", 0) else _PLAIN for var in program.invars]
    return _draws(program, kinds, [])


def _draws(
    program: Any, given: list[str], out: list[str], around: tuple[StackFrame, ...] = ()
) -> Iterator[MaskDraw]:
    """Walk through a program; ``out`` is filled with what its outputs are.

    ``around`` is where the program is called. One that JAX has traced before keeps no frames of its
    callers.
    """
    known = dict(zip(program.invars, given, strict=True))
    numbers: dict[Any, float] = {}

    def kind_of(var: Any) -> str:
        return _PLAIN if hasattr(var, "val") else known.get(var, _PLAIN)

    for equation in program.eqns:
        name = equation.primitive.name
        inputs = [kind_of(var) for var in equation.invars]
        result = next((kind for kind in (_DATA, _SCALED, _RANDOM) if kind in inputs), _PLAIN)
        outputs = [result] * len(equation.outvars)
        called = equation.params.get("name") if isinstance(equation.params, dict) else None
        if called == "_bernoulli":
            outputs = [_PLAIN] * len(outputs)
            if _DATA not in inputs:
                yield _draw_of(equation, around, _value(equation.invars[1], numbers))
        elif called == DILUTE:
            yield MaskDraw(QSD, math.nan, ())
        elif _is_sampler(equation, called):
            if _draws_bits(equation, called, numbers):
                yield _draw_of(equation, around)
            elif result != _DATA and _is_float(equation.outvars[0]):
                span = _span(equation, numbers) if called == "_uniform" else 1
                outputs = [_RANDOM if span == 1 else _SCALED] * len(outputs)
            else:
                outputs = [_PLAIN] * len(outputs)
        elif name in _SOURCES:
            outputs = [_RANDOM] * len(outputs)
        elif _makes_mask(equation, result):
            outputs = [_PLAIN] * len(outputs)
            yield _draw_of(equation, around)
        elif name in _SCALING and result == _RANDOM:
            outputs = [_SCALED] * len(outputs)
        elif result == _SCALED and _rounds(equation):
            outputs = [_PLAIN] * len(outputs)
        elif name in _ARITHMETIC:
            values = [_value(var, numbers) for var in equation.invars]
            numbers[equation.outvars[0]] = _ARITHMETIC[name](*values)
        else:
            for inner in _programs_in(equation):
                inner_out: list[str] = []
                kinds, place = _aligned(inputs, len(inner.invars)), _frames(equation, around)
                yield from _draws(inner, kinds, inner_out, place)
                if len(inner_out) == len(outputs):
                    outputs = inner_out
            if name in _ENDS or name.startswith(("reduce_", "cum", "scatter")):
                outputs = [_DATA if result == _DATA else _PLAIN] * len(outputs)
        known.update(zip(equation.outvars, outputs, strict=True))
    out.extend(kind_of(var) for var in program.outvars)


def _value(var: Any, numbers: Mapping[Any, float]) -> float:
    """Return a number of a program, NaN where it is not known in advance."""
    if hasattr(var, "val"):
        return float(var.val) if np.ndim(var.val) == 0 else math.nan
    return numbers.get(var, math.nan)


def _frames(equation: Any, around: tuple[StackFrame, ...]) -> tuple[StackFrame, ...]:
    frames = tuple(frames_of(equation))
    known = any(not in_package(frame, "jax", "quantal") for frame in frames)
    return frames if known else frames + around


def _draw_of(equation: Any, around: tuple[StackFrame, ...], kept: float = math.nan) -> MaskDraw:
    frames = _frames(equation, around)
    inner = next((f for f in frames if not in_package(f, "jax")), None)
    if inner is None or not in_package(inner, *_LIBRARIES):
        return MaskDraw("bernoulli", math.nan, frames)
    # The libraries ask for the probability to keep a unit; it comes as a float32.
    kind = inner.function.partition(".")[0].removesuffix("_impl").replace("__call__", "Dropout")
    return MaskDraw(kind, float(f"{1 - kept:.6g}"), frames)


def _is_sampler(equation: Any, called: str | None) -> bool:
    """Return whether this is a call of a distribution of ``jax.random``."""
    if called is None or not hasattr(jax.random, called.lstrip("_")):
        return False
    frames = frames_of(equation)
    return any(in_package(f, "jax") and "random" in f.file for f in frames[:12])


def _draws_bits(equation: Any, called: str | None, numbers: Mapping[Any, float]) -> bool:
    """Return whether a sampler of integers draws one of two."""
    several = equation.outvars[0].aval.ndim > 0
    return several and called == "_randint" and _span(equation, numbers) == 2


def _span(equation: Any, numbers: Mapping[Any, float]) -> float:
    """Return how far the bounds of a sampler lie apart, which it takes after the key."""
    low, high = (_value(var, numbers) for var in equation.invars[1:3])
    return high - low


def _makes_mask(equation: Any, kind: str) -> bool:
    """Return whether an operation makes a mask, or something as coarse, of random numbers."""
    if equation.primitive.name in _COMPARISONS or _becomes(equation, np.bool_):
        return kind in (_RANDOM, _SCALED)
    return kind == _RANDOM and _rounds(equation)


def _rounds(equation: Any) -> bool:
    truncates = _becomes(equation, np.integer) and _is_float(equation.invars[0])
    return equation.primitive.name in _ROUNDING or truncates


def _becomes(equation: Any, dtype: type) -> bool:
    converted = equation.primitive.name == "convert_element_type"
    return converted and np.issubdtype(equation.params["new_dtype"], dtype)


def _is_float(var: Any) -> bool:
    return bool(jnp.issubdtype(var.aval.dtype, jnp.floating))


def _programs_in(equation: Any) -> Iterator[Any]:
    """Walk through the programs that an operation holds: of a loop, a branch, a function."""
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns") and hasattr(inner, "invars"):
                yield inner


def _aligned(kinds: list[str], count: int) -> list[str]:
    """Return the kinds of a program's inputs; the first of an operation may be for itself."""
    return [_PLAIN] * (count - len(kinds)) + kinds[len(kinds) - min(count, len(kinds)) :]
