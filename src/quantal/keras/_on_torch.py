"""The draw of the Keras layers on torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import torch

from quantal._granularity import coefficient_shapes
from quantal._watch import NativeMask
from quantal.dilution import Dilution
from quantal.keras._draw import NOTHING_SHARED, RandomSource, SharedAxes
from quantal.keys import Key
from quantal.sites import Site
from quantal.torch import dilute as torch_dilute
from quantal.torch import sites
from quantal.torch._native_masks import native_masks
from quantal.torch._product import product


def make_tables(law: Dilution, shared: bool) -> None:
    """Keep nothing: the law is read as the layer runs."""


def dilute(
    x: torch.Tensor,
    law: Dilution,
    source: RandomSource,
    axes: SharedAxes = NOTHING_SHARED,
    tables: None = None,
) -> torch.Tensor:
    """Dilute x by a law, drawing from a source."""
    # Without a seed, QSD draws from torch's own stream, as Keras's own dropout does there.
    unseeded = source.seed is None or x.is_meta
    arguments: dict[str, Any] = {
        "generator": None if unseeded else _next_generator(source, x.device),
        "vary": law.vary,
        "unit_mean": law.unit_mean,
        "broadcast_dims": axes.coefficients,
        "p_broadcast_dims": axes.probabilities,
    }
    if (unseeded and not axes.coefficients) or not x.is_floating_point():  # which is refused
        return torch_dilute(x, law.rate, law.alpha, **arguments)
    # With a seed or a noise shape, Keras's own dropout writes 0 where it drops, even over infinity
    # or NaN. In half precision only the product is rounded, as everywhere.
    shape, _ = coefficient_shapes(x.shape, *axes)
    one = torch.ones((), dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    c = torch_dilute(one.expand(shape), law.rate, law.alpha, **arguments)
    return torch.where(c == 0, 0, product(x, c))


def masks_of_call(call: Callable[..., Any], args: tuple[Any, ...]) -> list[NativeMask]:
    """Return the masks that a call draws without QSD; torch's own streams stay as they were."""
    return masks_of_function(lambda: call(*args))


def masks_of_function(run: Callable[[], Any]) -> list[NativeMask]:
    """Return the masks that a function draws without QSD; torch's own streams are left alone."""
    with torch.random.fork_rng():
        return native_masks(run)


def sites_of_modules(layer: Any) -> list[Site]:
    """List where modules of torch within a layer drop units: quantal.torch.convert swaps them."""
    reason = "in a module of torch: quantal.torch.convert swaps it"
    return [
        replace(site, name=f"{name}/{site.name}", unreached="" if site.alpha else reason)
        for name, module in layer.named_children()
        if not isinstance(module, keras.layers.Layer | torch.nn.ParameterDict)
        for site in sites(module)
    ]


@torch.compiler.disable  # which knows no generators
def _next_generator(source: RandomSource, device: torch.device) -> torch.Generator | Key:
    seed, calls = source.generator.next().tolist()
    if isinstance(source.seed, Key):
        return source.seed.fold_in(calls)
    # 32 bits, since generators of CPUs take no more. The factor keeps the streams of
    # neighbouring seeds apart: they would meet only after a million calls.
    return torch.Generator(device).manual_seed((seed * 0x9E3779B1 + calls) % 2**32)
