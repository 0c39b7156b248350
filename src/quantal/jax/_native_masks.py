"""The masks that a JAX program draws.

Whatever the source looks like, a mask is coarse, as a comparison or a rounding of random numbers
is. And it changes data: it multiplies them, selects among them, is added to them or written into
them. Random numbers that stay fine are noise; those that only choose among data are an index or an
order. The draws of QSD are calls of one function, known by its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
from jax import numpy as jnp

from quantal._watch import StackFrame, looks_random
from quantal.jax._functional import DILUTE
from quantal.jax._private_api import callback_of
from quantal.jax._random_numbers import (
    ADDING_TO,
    COMPARISONS,
    DATA,
    HOST,
    PLAIN,
    WRITING,
    Equation,
    Kind,
    MaskDraw,
    Numbers,
    captured,
    is_data,
    is_random,
    join,
)

__all__ = ["QSD", "MaskDraw", "each_line_once", "every_draw", "native_masks"]

QSD = "QSD"
"""The kind of a draw that is QSD's."""

# Operations in which coarse numbers do not drop data: as indices, as a projection, side by side.
_HARMLESS = {
    *("gather", "dynamic_slice", "dot_general", "conv_general_dilated", "concatenate"),
    *ADDING_TO,
    *COMPARISONS,
}
_ADDING = {"add", "sub", "add_any"}


def native_masks(run: Callable[..., Any], *args: Any) -> list[MaskDraw]:
    """Trace a function, and return the masks that it draws without QSD, each line of code once.

    Examples
    --------
    >>> import quantal.jax
    >>> def run(key, x):
    ...     x = quantal.jax.dilute(x, 0.5, 1.0, key=key)
    ...     return x * jax.random.bernoulli(key, 0.9, x.shape)
    >>> [draw.kind for draw in native_masks(run, jax.random.key(0), jax.numpy.ones((2, 3)))]
    ['bernoulli']
    """
    return each_line_once(every_draw(run, *args))


def each_line_once(draws: Iterable[MaskDraw]) -> list[MaskDraw]:
    """Return those of the draws that are not QSD's."""
    native = (draw for draw in draws if draw.kind != QSD)
    return list({(draw.frame, draw.kind, str(draw.rate)): draw for draw in native}.values())


def every_draw(run: Callable[..., Any], *args: Any) -> list[MaskDraw]:
    """Trace a function, and return the masks that it draws, those of QSD among them."""
    with jax.disable_jit(False):  # or the draws of QSD would not stand in functions of their own
        program = jax.make_jaxpr(run)(*args).jaxpr
    reader = _ProgramReader()
    reader.read(program, [_given(var) for var in program.invars])
    return reader.draws


def _given(var: Any) -> Numbers:
    """Return what an input is: data, unless it is a key or a single number, such as a rate."""
    key = jnp.issubdtype(var.aval.dtype, jax.dtypes.prng_key)
    return DATA if getattr(var.aval, "ndim", 0) and not key else PLAIN


class _ProgramReader:
    """Reads programs, and takes note of the masks in them."""

    def __init__(self) -> None:
        self.draws: list[MaskDraw] = []

    def read(
        self, program: Any, given: list[Numbers], around: tuple[StackFrame, ...] = ()
    ) -> list[Numbers]:
        """Read a program, and return what its outputs are.

        ``around`` is where the program is called, since JAX does not note the callers of a program
        that it has traced before.
        """
        known = dict(zip(program.invars, given, strict=True))
        known.update((var, captured(var.aval)) for var in program.constvars)
        values: dict[Any, float] = {}

        def numbers_of(var: Any) -> Numbers:
            return captured(var.val) if hasattr(var, "val") else known.get(var, PLAIN)

        for each in program.eqns:
            inputs = [numbers_of(var) for var in each.invars]
            equation = Equation(each, inputs, values, around)
            known.update(zip(each.outvars, self._results(equation), strict=True))
            if not math.isnan(value := equation.value()):
                values[each.outvars[0]] = value
        return [numbers_of(var) for var in program.outvars]

    def _results(self, equation: Equation) -> list[Numbers]:
        """Return what an operation makes, and take note of the masks that it applies."""
        count = len(equation.outvars)
        if equation.called == DILUTE:
            self.draws.append(MaskDraw(QSD, math.nan, ()))
            return [DATA] * count
        if (known := equation.sampled() or equation.counted()) is not None:
            return [known] * count
        if equation.name in HOST:
            return self._from_host(equation)
        if programs := list(_programs_in(equation)):
            return self._results_of_programs(equation, programs)
        self.draws += _masks(equation)
        return equation.results()

    def _from_host(self, equation: Equation) -> list[Numbers]:
        """Return what Python code computes on the host, where it cannot be observed.

        From data it makes data, unless the code looks random; all else that it makes is random.
        """
        numbers = join(equation.inputs)
        if numbers.kind < Kind.ARRAY:
            numbers = Numbers(Kind.COARSE, (equation.draw(),))
        elif looks_random(callback_of(equation)):
            self.draws.append(equation.draw())
        return [numbers if var.aval.ndim else PLAIN for var in equation.outvars]

    def _results_of_programs(self, equation: Equation, programs: list[Any]) -> list[Numbers]:
        inputs, count = equation.inputs, len(equation.outvars)
        if equation.name == "scan":
            start = equation.params["num_consts"]
            end = start + equation.params["num_carry"]
            return self._loop(
                equation, programs[0], inputs[:start], inputs[start:end], inputs[end:]
            )
        if equation.name == "while":
            start = equation.params["cond_nconsts"]
            end = start + equation.params["body_nconsts"]
            body = equation.params["body_jaxpr"].jaxpr
            return self._loop(equation, body, inputs[start:end], inputs[end:], [])
        outputs = [PLAIN] * count
        for program in programs:
            given = _aligned(inputs, len(program.invars))
            made = self.read(program, given, equation.frames)
            made = made if len(made) == count else [join(inputs)] * count
            outputs = [join(pair) for pair in zip(outputs, made, strict=True)]
        if equation.name == "cond" and is_random(inputs[0]):
            if any(each.kind >= Kind.ARRAY for each in outputs):
                self.draws += inputs[0].draws
            outputs = [join((each, inputs[0])) for each in outputs]
        return outputs

    def _loop(
        self,
        equation: Equation,
        body: Any,
        before: list[Numbers],
        carried: list[Numbers],
        after: list[Numbers],
    ) -> list[Numbers]:
        """Read the body of a loop until what it carries along stays the same."""
        while True:
            made = self.read(body, [*before, *carried, *after], equation.frames)
            joined = [join(pair) for pair in zip(carried, made, strict=False)]
            if joined == carried:
                return [*carried, *made[len(carried) :]]
            carried = joined


def _masks(equation: Equation) -> tuple[MaskDraw, ...]:
    """Return the masks that an operation applies to data."""
    numbers = equation.inputs
    if equation.name in WRITING:
        target, indices, update = equation.writes()
        overwrites = target.kind >= Kind.ARRAY > update.kind and is_random(indices)
        return (indices.draws or (equation.draw(),)) if overwrites else ()
    harmless = equation.name in _HARMLESS and not equation.is_product()
    if harmless or not any(map(is_data, numbers)):
        return ()
    least = Kind.COARSE if equation.name in _ADDING else Kind.FEW
    return join(each for each in numbers if least <= each.kind <= Kind.COARSE).draws


def _programs_in(equation: Equation) -> Iterator[Any]:
    """Walk through the programs that an operation holds: of a loop, a branch, a function."""
    if equation.name in (*WRITING, *ADDING_TO):  # which only says how two numbers become one
        return
    for value in equation.params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns") and hasattr(inner, "invars"):
                yield inner


def _aligned(numbers: list[Numbers], count: int) -> list[Numbers]:
    """Return what a program's inputs are: the last inputs of its operation."""
    return [PLAIN] * (count - len(numbers)) + numbers[len(numbers) - min(count, len(numbers)) :]
