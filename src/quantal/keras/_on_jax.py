"""The draw of the Keras layers on JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import keras
from jax import numpy as jnp

from quantal._watch import NativeMask, StackFrame
from quantal.dilution import Dilution
from quantal.jax import dilute as jax_dilute
from quantal.jax._random_bits import threefry_key, typed_key
from quantal.jax._watch import native_masks
from quantal.keras._draw import NOTHING_SHARED, RandomSource, SharedAxes
from quantal.keys import Key
from quantal.sites import Site


def make_tables(law: Dilution, shared: bool) -> None:
    """Keep nothing: a compiled function holds its law as a constant."""


def dilute(
    x: jax.Array,
    law: Dilution,
    source: RandomSource,
    axes: SharedAxes = NOTHING_SHARED,
    tables: None = None,
) -> jax.Array:
    """Dilute x by a law, drawing from a source."""
    return jax_dilute(
        x,
        law.rate,
        law.alpha,
        key=_next_key(source),
        vary=law.vary,
        unit_mean=law.unit_mean,
        broadcast_dims=axes.coefficients,
        p_broadcast_dims=axes.probabilities,
    )


def masks_of_call(call: Callable[..., Any], args: tuple[Any, ...]) -> list[NativeMask]:
    """Return the masks that a call draws without QSD; it is traced, so that nothing happens."""
    return [
        NativeMask(draw.rate, tuple(StackFrame(*frame) for frame in draw.frames))
        for draw in native_masks(call, *jax.tree.map(jnp.asarray, args))
    ]


def masks_of_function(run: Callable[[], Any]) -> list[NativeMask]:
    """Return the masks that a function draws without QSD; it must be one that JAX can trace."""
    with keras.StatelessScope():  # or what is traced would stay in variables
        return masks_of_call(run, ())


def sites_of_modules(layer: Any) -> list[Site]:
    """Return the site of a Linen module that a FlaxLayer holds, if its code makes dropout."""
    if not isinstance(layer, keras.layers.FlaxLayer):
        return []
    from quantal.jax.nnx._bridge import linen_site

    site = linen_site("", layer.module)
    reason = "in a module of Linen: make the layer of quantal.jax.linen.convert(module, alpha)"
    return [replace(site, unreached="" if site.alpha else reason)] if site else []


def _next_key(source: RandomSource) -> jax.Array:
    seed_and_calls = source.generator.next()
    if isinstance(source.seed, Key):
        return jax.random.fold_in(typed_key(source.seed), seed_and_calls[1])
    # Keras's own random functions use these two words as a key too.
    return threefry_key(seed_and_calls)
