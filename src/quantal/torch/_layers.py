"""The QSD layer, which takes the place of ``torch.nn.Dropout``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.dropout import _DropoutNd

from quantal._granularity import Axes
from quantal.dilution import Dilution, Vary
from quantal.keys import Key
from quantal.torch._functional import check_generator, check_input, spread
from quantal.torch._multiply import zeros
from quantal.torch._tables import Tables, tables

__all__ = ["QSD"]


class QSD(_DropoutNd):
    """Quantal Synaptic Dilution, in the place of ``torch.nn.Dropout``.

    Parameters
    ----------
    p : float
        The probability that a unit is dropped, by torch's name for it; also called ``rate``.
    alpha : float
        The homogeneity, above 0; ``inf`` is standard dropout.
    inplace : bool
        Write the result into the input.
    vary, unit_mean
        As in `quantal.Dilution`.
    broadcast_dims, p_broadcast_dims
        As in `quantal.dilute`.
    generator : torch.Generator, quantal.key or None
        The layer's source of randomness; None is torch's own stream of the input's device. From a
        key, call number n draws with ``key.fold_in(n)``; ``calls`` counts them, from 0.

    Notes
    -----
    ``p``, ``rate``, ``alpha`` and ``dilution`` may be set at any time, without a new compilation.
    The layer has no parameters and no buffers: its state_dict is empty, as that of dropout.

    Examples
    --------
    >>> layer = QSD(0.2, 0.2)
    >>> layer
    QSD(p=0.2, alpha=0.2, inplace=False)
    >>> x = torch.ones(3, 4)
    >>> layer.eval()(x) is x
    True
    """

    _own_dims: tuple[int, ...] = ()
    _tables: Tables

    def __init__(
        self,
        p: float = 0.5,
        alpha: float | None = None,
        inplace: bool = False,
        *,
        vary: Vary = "pq",
        unit_mean: bool = False,
        broadcast_dims: Axes = (),
        p_broadcast_dims: Axes = (),
        generator: torch.Generator | Key | None = None,
    ) -> None:
        torch.nn.Module.__init__(self)  # that of _DropoutNd would set p before alpha is known
        check_generator(generator)
        self.inplace = inplace
        self.broadcast_dims = broadcast_dims
        self.p_broadcast_dims = p_broadcast_dims
        self.generator = generator
        self.calls = 0
        self._device = torch.device("cpu")
        self.dilution = Dilution(p, alpha, vary=vary, unit_mean=unit_mean)

    # --- parameters ----------------------------------------------------------------------------

    @property
    def dilution(self) -> Dilution:
        """The law of the coefficients."""
        return self._dilution

    @dilution.setter
    def dilution(self, law: Dilution) -> None:
        self._dilution = law
        # All that `forward` reads are tensors and this, so a new law needs no new graph.
        self._limit = law.rate if law.rate in (0, 1) else None
        self._move(self._device)

    @property
    def p(self) -> float:
        """The probability that a unit is dropped."""
        return self._dilution.rate

    @p.setter
    def p(self, rate: float) -> None:
        self.dilution = dataclasses.replace(self._dilution, rate=rate)

    rate = p

    @property
    def alpha(self) -> float:
        """The homogeneity."""
        return self._dilution.alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        self.dilution = dataclasses.replace(self._dilution, alpha=alpha)

    @property
    def calls(self) -> int:
        """How many draws a portable key has served; set it to resume a run."""
        return int(self._count)

    @calls.setter
    def calls(self, count: int) -> None:
        # One number in two guises: eager code must not meet torch.func, which forbids in-place
        # operations on what a function captures, and a graph takes nothing but tensors.
        self._count = np.array(count, np.int64)
        with torch.inference_mode(False):  # it may count in training next
            self._calls = torch.from_numpy(self._count)

    def extra_repr(self) -> str:
        """Return the parameters in torch's habit; those of granularity only if they are set."""
        text = f"p={self.p}, alpha={self.alpha}, inplace={self.inplace}"
        more = {"vary": self.dilution.vary, "unit_mean": self.dilution.unit_mean}
        more |= {name: getattr(self, name) for name in ("broadcast_dims", "p_broadcast_dims")}
        plain = {"vary": "pq", "unit_mean": False, "broadcast_dims": self._own_dims}
        shown = (f", {k}={v!r}" for k, v in more.items() if v != plain.get(k, ()))
        return text + "".join(shown)

    # --- the pass ------------------------------------------------------------------------------

    def forward(self, input: Tensor) -> Tensor:
        """Dilute in training; return the input itself in evaluation and at a rate of 0."""
        mask_shape, p_shape = check_input(input, self.broadcast_dims, self.p_broadcast_dims)
        if not self.training or self._limit == 0:
            return input
        if self._limit == 1:
            return zeros(input, self.inplace)
        made = self._tables
        if made.values.device != input.device:
            made = self._move(input.device)
        check_generator(self.generator, counted=True)
        generator, calls = self.generator, None
        if isinstance(generator, Key):
            if torch.compiler.is_compiling():
                calls = self._calls
            else:
                generator = generator.fold_in(self.calls)
                self._count[...] += 1
        return spread(input, made, mask_shape, p_shape, generator, calls, self.inplace)

    # --- the tables: no buffers, but wherever they are needed -----------------------------------

    def _move(self, device: torch.device) -> Tables:
        """Return the tables on a device and keep them there."""
        if torch.compiler.is_compiling():  # which cannot make them, nor needs to keep them
            return Tables(*(part.to(device) for part in self._tables))
        shared = self.p_broadcast_dims == 0 or bool(self.p_broadcast_dims)
        made = tables(self._dilution, shared, device)
        if device.type != "meta":  # there they have no values to go elsewhere with
            self._tables, self._device = made, device
        return made

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> QSD:
        super()._apply(fn, recurse)
        self._move(fn(torch.empty(0, device=self._device)).device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        made_again = ("_tables", "_device", "_calls")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.calls = int(self._count)
        self._move(torch.device("cpu"))
