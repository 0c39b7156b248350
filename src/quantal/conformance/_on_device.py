"""What ``quantal conform torch --device cuda`` tells beside the kit: bits and times of a device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.benchmark import Timer

import quantal
from quantal.torch import QSD, dilute
from quantal.torch._self_check import usable

__all__ = ["differences", "ratios"]

_SHAPES = ((), (1,), (5, 7), (2, 3, 9), (64, 256), (33, 1000), (2**20,))
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SIZES = (2**10, 2**16, 2**20, 2**24)
_SECONDS = 0.5  # for each time that is taken


def differences(device: str) -> list[str]:
    """Return where outputs and gradients of a portable key differ from those of a CPU in a bit."""
    different = []
    for number, (shape, dtype) in enumerate(itertools.product(_SHAPES, _dtypes(device))):
        x, upstream = torch.randn(2, *shape, generator=torch.Generator()).to(dtype)
        options: dict[str, Any] = {"generator": quantal.key(number)}
        for options["p_broadcast_dims"] in ((), *((0,) for _ in shape[:1])):
            results = [_both(x.to(where), upstream.to(where), options) for where in ("cpu", device)]
            if not all(torch.equal(*pair) for pair in zip(*results, strict=True)):
                different.append(f"keys: other bits for {shape}, {dtype}, {options}")
    return different


def _dtypes(device: str) -> Iterator[torch.dtype]:
    for dtype in _DTYPES:
        try:
            torch.empty(0, dtype=dtype, device=device)
        except (RuntimeError, TypeError):  # Apple's devices have no float64
            continue
        yield dtype


def _both(x: torch.Tensor, upstream: torch.Tensor, options: Any) -> tuple[torch.Tensor, ...]:
    y = dilute(x.requires_grad_(), 0.3, 0.2, **options)
    return y.detach().cpu(), torch.autograd.grad(y, x, upstream)[0].cpu()


def ratios(device: str) -> Iterator[str]:
    """Yield lines that compare QSD with torch's own dropout: forward and backward, on a device."""
    fused = usable(torch.empty(0, device=device).device)
    yield "QSD by one fused kernel a pass" if fused else "QSD by torch's own operations"
    yield f"forward and backward on {_name(device)}, torch {torch.__version__}: median µs a call"
    yield f"{'units':>10} {'dtype':>9} {'dropout':>9} {'QSD':>9} {'ratio':>6}"
    for size, dtype in itertools.product(_SIZES, (torch.float32, torch.bfloat16)):
        own, qsd = (
            _microseconds(layer, size, dtype, device)
            for layer in (torch.nn.Dropout(0.2), QSD(0.2, 0.2).to(device))
        )
        yield f"{size:>10} {str(dtype)[6:]:>9} {own:>9.1f} {qsd:>9.1f} {qsd / own:>6.2f}"


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def _microseconds(layer: Any, size: int, dtype: torch.dtype, device: str) -> float:
    x = torch.randn(size, dtype=dtype, device=device, requires_grad=True)
    given = {"layer": layer, "x": x, "upstream": torch.randn_like(x), "grad": torch.autograd.grad}
    # Waits for the device before it reads the clock.
    timer = Timer("grad(layer(x), x, upstream)", globals=given)
    return float(timer.blocked_autorange(min_run_time=_SECONDS).median * 1e6)
