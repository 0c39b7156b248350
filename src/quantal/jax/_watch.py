"""Proof by running: every mask that a training pass draws without QSD.

The pass is traced, not computed. In the program that comes of it, whatever its source looks like,
a mask is a comparison of random bits with something that is no data; the draws of QSD are calls of
one function, known by its name.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from quantal._errors import wrong_value
from quantal._selection import Place
from quantal._source_scan import SourceCall
from quantal.jax._functional import DILUTE
from quantal.jax._private_api import Frame, frames_of
from quantal.sites import Site

__all__ = ["Draw", "native_draws", "unknown_places"]

_SOURCES = ("random_bits", "rng_bit_generator", "rng_uniform", "threefry2x32")
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
# What comes of random numbers by these is an order, a choice or a sum of them, but no mask.
_ENDS = ("sort", "argmax", "argmin", "rem", "while", "scan", "dot_general", "top_k")
# Of JAX's own samplers, these make masks or are made into masks.
_SAMPLERS = ("_bernoulli", "_uniform")
_LIBRARIES = ("flax", "equinox", "haiku")

# What libraries do to a rate before they draw.
_ARITHMETIC: dict[str, Callable[..., float]] = {
    "sub": operator.sub,
    "convert_element_type": lambda number: number,
    "stop_gradient": lambda number: number,
    "copy": lambda number: number,
}

_DATA, _RANDOM, _PLAIN = "data", "random", "plain"
_QSD = "QSD"


class Draw(NamedTuple):
    """A mask that a program draws.

    Attributes
    ----------
    kind : str
        What drew it, such as ``"Dropout"``, ``"dot_product_attention_weights"`` or ``"bernoulli"``.
    rate : float
        With which rate, NaN where that cannot be told.
    frames : tuple of Frame
        Where, the innermost first.
    """

    kind: str
    rate: float
    frames: tuple[Frame, ...]

    @property
    def frame(self) -> Frame | None:
        """The line of the user's code that it comes from; None if it cannot be told."""
        outside = [frame for frame in self.frames if not _in_package(frame, "jax", "quantal")]
        own = [frame for frame in outside if not _in_package(frame, *_LIBRARIES)]
        return next(iter(own or outside), None)

    @property
    def site(self) -> Site:
        """The place that it stands for, named by file and line."""
        if self.frame is None:
            return Site("(unknown)", self.kind, self.rate, unreached="it draws a mask of its own")
        where = f"{Path(self.frame.file).name}:{self.frame.line}"
        reason = f"it draws a mask of its own in {self.frame.function}, {where}"
        return Site(where, self.kind, self.rate, unreached=reason)


def unknown_places(
    run: Callable[..., Any], args: tuple[Any, ...], known: Iterable[Place]
) -> list[Place]:
    """Return a place for each mask that a training pass draws without QSD, and that is not known.

    Parameters
    ----------
    run, args
        The pass, in which all dropout that can be swapped is QSD.
    known : iterable of Place
        What has been found by looking.
    """
    known = list(known)
    unreached = [place for place in known if place.site.unreached]
    draws = list(_every_draw(run, args))
    if not draws and any(place.site.rate != 0 for place in known):
        expected = "a training pass, in which dropout draws"
        raise wrong_value("example", expected, "a pass that draws nothing")
    return [
        Place(draw.site, None)
        for draw in _each_line_once(draws)
        if not any(_is_of(draw, place) for place in unreached)
    ]


def _is_of(draw: Draw, place: Place) -> bool:
    """Return whether a mask was drawn at a place that is known to be out of reach."""
    functions: list[Any]
    if isinstance(place.how, SourceCall):
        functions = [place.how.function] if draw.kind.startswith(place.site.kind) else []
    else:
        functions = [type(place.module).__call__, getattr(place.module, "attention_fn", None)]
    codes = [getattr(inspect.unwrap(f), "__code__", None) for f in functions if f is not None]
    names = {(code.co_filename, code.co_qualname) for code in codes if code is not None}
    return any((frame.file, frame.function) in names for frame in draw.frames)


def native_draws(run: Callable[..., Any], *args: Any) -> list[Draw]:
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
    return _each_line_once(_every_draw(run, args))


def _each_line_once(draws: Iterable[Draw]) -> list[Draw]:
    native = (draw for draw in draws if draw.kind != _QSD)
    return list({(draw.frame, draw.kind, str(draw.rate)): draw for draw in native}.values())


def _every_draw(run: Callable[..., Any], args: tuple[Any, ...]) -> Iterator[Draw]:
    program = jax.make_jaxpr(run)(*args).jaxpr
    kinds = [_DATA if getattr(var.aval, "ndim", 0) else _PLAIN for var in program.invars]
    return _draws(program, kinds, [])


def _draws(program: Any, given: list[str], out: list[str]) -> Iterator[Draw]:
    """Walk through a program; ``out`` is filled with what its outputs are."""
    known = dict(zip(program.invars, given, strict=True))
    numbers: dict[Any, float] = {}

    def kind_of(var: Any) -> str:
        return _PLAIN if hasattr(var, "val") else known.get(var, _PLAIN)

    for equation in program.eqns:
        name = equation.primitive.name
        inputs = [kind_of(var) for var in equation.invars]
        result = _DATA if _DATA in inputs else _RANDOM if _RANDOM in inputs else _PLAIN
        outputs = [result] * len(equation.outvars)
        called = equation.params.get("name") if isinstance(equation.params, dict) else None
        if called == "_bernoulli":
            outputs = [_PLAIN] * len(outputs)
            if _DATA not in inputs:
                yield _draw_of(equation, _value(equation.invars[1], numbers))
        elif called == DILUTE:
            yield Draw(_QSD, math.nan, ())
        elif _is_sampler(equation, called):
            outputs = [_PLAIN] * len(outputs)
        elif name in _SOURCES:
            outputs = [_RANDOM] * len(outputs)
        elif (name in _COMPARISONS or _to_bool(equation)) and result == _RANDOM:
            outputs = [_PLAIN] * len(outputs)
            yield _draw_of(equation)
        elif name in _ARITHMETIC:
            values = [_value(var, numbers) for var in equation.invars]
            numbers[equation.outvars[0]] = _ARITHMETIC[name](*values)
        else:
            for inner in _programs_in(equation):
                inner_out: list[str] = []
                yield from _draws(inner, _aligned(inputs, len(inner.invars)), inner_out)
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


def _draw_of(equation: Any, kept: float = math.nan) -> Draw:
    frames = tuple(frames_of(equation))
    inner = next((f for f in frames if not _in_package(f, "jax")), None)
    if inner is None or not _in_package(inner, *_LIBRARIES):
        return Draw("bernoulli", math.nan, frames)
    # The libraries ask for the probability to keep a unit; it comes as a float32.
    kind = inner.function.partition(".")[0].removesuffix("_impl")
    return Draw(kind, float(f"{1 - kept:.6g}"), frames)


def _is_sampler(equation: Any, called: str | None) -> bool:
    """Return whether this is a call of another distribution of ``jax.random``."""
    if called is None or called in _SAMPLERS or not hasattr(jax.random, called.lstrip("_")):
        return False
    frames = frames_of(equation)
    return any(_in_package(f, "jax") and "random" in f.file for f in frames[:12])


def _to_bool(equation: Any) -> bool:
    converted = equation.primitive.name == "convert_element_type"
    return bool(converted and np.dtype(equation.params["new_dtype"]) == np.dtype(np.bool_))


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


def _in_package(frame: Frame, *packages: str) -> bool:
    """Return whether a line stands in one of these packages, or in Python's own library."""
    standard = str(sysconfig.get_path("stdlib"))
    if frame.file.startswith(standard) and "site-packages" not in frame.file:
        return True
    files = (getattr(sys.modules.get(name), "__file__", None) for name in packages)
    return any(frame.file.startswith(str(Path(file).parent) + "/") for file in files if file)
