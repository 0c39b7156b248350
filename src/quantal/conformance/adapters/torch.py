"""``quantal.torch.QSD`` on trial: on torch's own stream, on a generator, on a portable key."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import quantal
from quantal._errors import wrong_value
from quantal.conformance._adapter import Array
from quantal.conformance.adapters.layers import LayerAdapter
from quantal.torch import QSD

__all__ = ["TorchAdapter", "generator", "native", "portable"]


class TorchAdapter(LayerAdapter):
    """What the adapters for torch share."""

    # ruff: noqa: D102  (documented in the base class)

    name = "torch"
    device = torch.device("cpu")

    def on(self, device: str) -> TorchAdapter:
        """Return the same adapter for tensors on another device."""
        moved = copy.copy(self)
        moved.device = _available(device)
        moved.name = f"{self.name} on {device}"
        return moved

    def source(self, seed: int) -> Any:
        return torch.Generator(self.device).manual_seed(seed)

    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        layer = QSD(rate, alpha, generator=self.source(seed), **settings)
        trained: Callable[[Any], Any] = layer.train(training)
        return trained

    def tensor(self, x: Array) -> Any:
        if x.dtype.name == "bfloat16":
            return torch.from_numpy(x.view(np.int16).copy()).view(torch.bfloat16).to(self.device)
        return torch.from_numpy(x.copy()).to(self.device)

    def array(self, x: Any) -> Array:
        x = x.cpu()
        if x.dtype == torch.bfloat16:
            import ml_dtypes

            return np.asarray(x.detach().view(torch.int16).numpy().view(ml_dtypes.bfloat16))
        return np.asarray(x.detach().numpy())

    def vjp(self, f: Callable[[Any], Any], x: Any, upstream: Any) -> tuple[Any, Any]:
        output = f(x.requires_grad_())
        return output, torch.autograd.grad(output, x, upstream)[0]

    def global_state(self) -> object:
        states = [torch.get_rng_state()]
        if self.device.type in ("cuda", "xpu"):
            states += [getattr(torch, self.device.type).get_rng_state(self.device)]
        return [state.numpy().tobytes() for state in states]


class _Native(TorchAdapter):
    """On the stream that ``torch.manual_seed`` sets, where users draw from; it is put back."""

    def source(self, seed: int) -> None:
        return None

    def calls(self, x: Array, *, seed: int, **settings: Any) -> list[Array]:
        with self._stream_put_back():
            torch.manual_seed(seed)
            return super().calls(x, seed=seed, **settings)

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        with self._stream_put_back():
            torch.manual_seed(seed)
            return super().grad(x, upstream, seed=seed, **settings)

    def _stream_put_back(self) -> Any:
        kind = self.device.type
        if kind not in ("cuda", "xpu"):  # torch knows no state of Apple's devices to put back
            return torch.random.fork_rng(devices=[])
        return torch.random.fork_rng(devices=[self.device], device_type=kind)


class _Generator(TorchAdapter):
    name = "torch-generator"


class _Portable(TorchAdapter):
    name = "torch-key"

    def source(self, seed: int) -> Any:
        return quantal.key(seed)


def _available(device: str) -> torch.device:
    try:
        x = torch.empty(0, device=device)
        x.cpu()  # which "meta" refuses: it has no values that could be compared
    except Exception as error:  # each kind of device has its own, which says what is missing
        why = str(error).partition("\n")[0]
        raise wrong_value("device", f"a device of torch that is here ({why})", device) from error
    return x.device


native, generator, portable = _Native(), _Generator(), _Portable()
