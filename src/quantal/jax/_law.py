"""The law of a draw: known now, known only when a program runs, or given as a table.

A rate and an alpha that are numbers make a `Dilution`. As traced arrays, they make an
`UnknownLaw`, whose table comes from the host while the program runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp

from quantal._errors import wrong_type
from quantal.dilution import Dilution, Vary
from quantal.jax._coefficients import OwnTable, PSharedTable, table_on_device

__all__ = ["Number", "UnknownLaw", "is_random", "law_of", "table_of"]

Number: TypeAlias = float | jax.Array


@dataclass(frozen=True)
class UnknownLaw:
    """A law of which some parameters are traced.

    Those stand as ½ in ``others``; they are checked on the host, when the table is made.
    """

    traced: dict[str, jax.Array]
    others: Dilution


def law_of(
    rate: Number, alpha: Number | None, vary: Vary = "pq", unit_mean: bool = False
) -> Dilution | UnknownLaw:
    """Check the parameters of a law, and return it."""
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


def table_of(law: Dilution | UnknownLaw, kind: type[OwnTable] | type[PSharedTable]) -> Any:
    """Return a table: a constant of the program or, where a parameter is traced, from the host."""
    if isinstance(law, Dilution):
        return table_on_device(kind, law)
    others = law.others

    def on_host(**arrays: Any) -> Any:
        numbers = {name: _number(value) for name, value in arrays.items()}
        parameters = {"rate": others.rate, "alpha": others.alpha} | numbers
        return kind.of(Dilution(**parameters, vary=others.vary, unit_mean=others.unit_mean))

    traced = {name: lax.stop_gradient(value) for name, value in law.traced.items()}
    return jax.pure_callback(on_host, kind.shapes(), vmap_method="sequential", **traced)


def is_random(rate: Number) -> bool:
    """Return whether a dilution of this rate needs a key: not at the rates 0 and 1."""
    return isinstance(rate, jax.Array) or 0 < rate < 1


def _number(array: Any) -> float:
    # By the shortest decimal: a float32 of 0.1 means 0.1, and finds the same table.
    return float(str(np.asarray(array)[()]))
