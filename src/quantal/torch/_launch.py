"""The kernels of `quantal.torch._triton_kernels` as operators of torch.

Operators, since they are what dispatch modes see: fake tensors, counters of operations, selective
checkpoints.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["LANES", "multiply_by_key", "multiply_by_seed", "options_of_target", "rounds_by_hand"]

LANES = 128  # part of the stream of a seed: another number would be other draws
_SMALL = 2**31 - 2**12  # so many units are numbered within 32 bits, with the rest of a tile
_library = torch.library.Library("quantal", "FRAGMENT")


def _operator(schema: str) -> Callable[[Callable[..., None]], Any]:
    """Make an operator of a function; on tensors without values it does nothing."""
    name = schema.partition("(")[0]

    def made(launch: Callable[..., None]) -> Any:
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, launch, "CompositeExplicitAutograd")
        torch.library.register_fake(f"quantal::{name}", lambda *_: None, lib=_library)
        return getattr(torch.ops.quantal, name).default

    return made


@_operator(
    "multiply_by_seed(Tensor x, Tensor(a!) y, Tensor values, Tensor threshold, Tensor seed) -> ()"
)
def multiply_by_seed(x: Tensor, y: Tensor, values: Tensor, threshold: Tensor, seed: Tensor) -> None:
    """Write the product of x and the coefficients of a seed into y; both lie alike in memory."""
    from quantal.torch import _triton_kernels as kernels

    if count := x.numel():
        with _on(x.device):
            kernels.multiply_by_seed[(-(-count // (8 * LANES)),)](
                x, y, values, threshold, seed, count, **_options(x, y)
            )


@_operator(
    "multiply_by_key(Tensor x, Tensor(a!) y, Tensor values, Tensor threshold,"
    " int word0, int word1, int level) -> ()"
)
def multiply_by_key(
    x: Tensor, y: Tensor, values: Tensor, threshold: Tensor, word0: int, word1: int, level: int
) -> None:
    """Write the product of x and the coefficients of a key into y; both are contiguous."""
    from quantal.torch import _triton_kernels as kernels

    if count := x.numel():
        last = x.shape[-1] if x.ndim else 1
        blocks = count // last * -(-last // 4)
        # Signed numbers of the same bits: so each argument always has the same type.
        words = ((word ^ 2**31) - 2**31 for word in (word0, word1))
        ragged = last % 4 != 0 and last != count
        with _on(x.device):
            kernels.multiply_by_key[(-(-blocks // LANES),)](
                x, y, values, threshold, *words, level, count, last, RAGGED=ragged, **_options(x, y)
            )


def _options(x: Tensor, y: Tensor) -> dict[str, int]:
    aligned = not (x.data_ptr() | y.data_ptr()) % 16
    wide = x.numel() > _SMALL
    return {"ALIGNED": aligned, "WIDE": wide, "LANES": LANES, **_options_of_device(x.device)}


def _on(device: torch.device) -> Any:
    """Return the context in which Triton launches on a device: on CPUs, in tests, there is none."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def rounds_by_hand(device: torch.device) -> bool:
    """Return whether the kernels round to bfloat16 themselves, rather than the device."""
    return bool(_options_of_device(device)["BY_HAND"])


@functools.cache
def _options_of_device(device: torch.device) -> dict[str, int]:
    if device.type != "cuda":
        return {"BY_HAND": False, "num_warps": 1}
    import triton

    return options_of_target(triton.runtime.driver.active.get_current_target())


def options_of_target(target: Any) -> dict[str, int]:
    """Return what kernels are compiled with for a kind of device, as Triton describes it."""
    # Of AMD's devices for training, the gfx950 is the first with an instruction that rounds.
    by_hand = target.backend == "hip" and target.arch != "gfx950"
    return {"BY_HAND": by_hand, "num_warps": LANES // target.warp_size}  # a thread for each lane
