"""The parameters of a draw: known now, known only when a program runs, or given as a table.

A rate and an alpha that are numbers make a `Dilution`. As traced arrays, they make an
`UnknownLaw`, whose table comes from the host while the program runs. A `Law` has its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal._errors import wrong_type, wrong_value
from quantal.dilution import Dilution, Vary
from quantal.jax._coefficients import SharedArrays, table_on_device
from quantal.jax._law import Law

__all__ = ["Number", "Rate", "UnknownLaw", "described", "is_random", "law_of", "mode", "table_of"]

Number: TypeAlias = float | jax.Array
Rate: TypeAlias = Number | Law


@dataclass(frozen=True)
class UnknownLaw:
    """A law of which some parameters are traced.

    In ``others``, they are ½; they are checked on the host, when the table is made.
    """

    traced: Mapping[str, jax.Array]
    others: Dilution


def law_of(
    rate: Rate, alpha: Number | None, vary: Vary = "pq", unit_mean: bool = False
) -> Dilution | UnknownLaw | Law:
    """Check the parameters of a law, and return it."""
    if isinstance(rate, Law):
        for name, value, usual in (
            ("alpha", alpha, None), ("vary", vary, "pq"), ("unit_mean", unit_mean, False),
        ):  # fmt: skip
            if value is not usual and not (isinstance(value, str) and value == usual):
                raise wrong_value(name, f"no {name} beside a law, which has its own", value)
        return rate
    given: dict[str, Any] = {"rate": rate, "alpha": alpha}
    traced = {}
    for name, value in given.items():
        if isinstance(value, jax.Array):
            if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
                expected = "a number, or a scalar floating-point array"
                raise wrong_type(name, expected, jax.typeof(value))
            if isinstance(value, jax.core.Tracer):
                traced[name] = value
            else:
                given[name] = _number(value)
    known = Dilution(**given | dict.fromkeys(traced, 0.5), vary=vary, unit_mean=unit_mean)
    return UnknownLaw(traced, known) if traced else known


def table_of(law: Dilution | UnknownLaw | Law, kind: Any) -> Any:
    """Return a table: a constant of the program or, where a parameter is traced, from the host."""
    if isinstance(law, Dilution):
        return table_on_device(kind, law)
    if isinstance(law, Law):
        if not isinstance(law.table, kind):
            shared = kind is SharedArrays
            there = "there" if shared else "no"
            expected = (
                f"a law made with shared_p={shared}, since {there} p_broadcast_dims are given"
            )
            raise wrong_value("rate", expected, f"law(shared_p={not shared})")
        return jax.tree.map(lax.stop_gradient, law.table)
    others = law.others

    def on_host(**arrays: Any) -> Any:
        numbers = {name: _number(value) for name, value in arrays.items()}
        parameters = {"rate": others.rate, "alpha": others.alpha} | numbers
        return kind.of(Dilution(**parameters, vary=others.vary, unit_mean=others.unit_mean))

    traced: Any = {name: lax.stop_gradient(value) for name, value in law.traced.items()}
    return jax.pure_callback(on_host, kind.shapes(), vmap_method="sequential", **traced)


def is_random(rate: Rate) -> bool:
    """Return whether a dilution of this rate needs a key: not at the rates 0 and 1.

    What is not a rate at all is refused later, by `law_of`.
    """
    number: Any = rate.item() if isinstance(rate, np.ndarray) and rate.shape == () else rate
    if isinstance(number, Real):
        return 0 < number < 1  # type: ignore[operator] # too large for float(), maybe
    return isinstance(rate, jax.Array | Law)


def mode(name: str, value: Any) -> bool | None:
    """Return a layer's switch, such as ``deterministic``, as a bool; None if it is left open."""
    if isinstance(value, jax.Array) and value.dtype == bool and value.shape == ():
        return bool(value)
    if value is not None and not isinstance(value, bool | np.bool_):
        raise wrong_type(name, "True, False or None", value)
    return None if value is None else bool(value)


def described(layer: Any) -> Any:
    """Return what has the parameters of a QSD layer: the layer, or the `Law` that it holds."""
    return layer.rate if isinstance(layer.rate, Law) else layer


def _number(array: Any) -> float:
    # As its shortest decimal: a float32 of 0.1 means 0.1, and has the same table.
    return float(str(np.asarray(array)[()]))
