"""The layer under test, at each site of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from examples.run import Run
from quantal.torch import QSD

__all__ = ["Sites"]


class Sites:
    """Makes the sites of a run, in the order of the pass."""

    def __init__(self, run: Run) -> None:
        self.settings, self.rank = run.settings, run.rank
        self.keys = iter(run.keys)

    def __call__(self, words: bool = False) -> nn.Module:
        """Return the layer of the next site; ``words``: one coefficient for all of a word."""
        law, key = self.settings.dilution, next(self.keys)
        if law is None:
            return nn.Identity()
        portable = self.settings.stream == "portable"
        if self.settings.layer == "dropout" and not portable:
            # Of an input (batch, words, features), Dropout1d drops words.
            return (nn.Dropout1d if words else nn.Dropout)(law.rate)
        options: dict[str, Any] = {
            "vary": law.vary,
            "unit_mean": law.unit_mean,
            "broadcast_dims": -1 if words else (),
            "p_broadcast_dims": self.settings.p_broadcast_dims,
        }
        if not portable:
            return QSD(law.rate, law.alpha, **options)
        if self.settings.devices == 1:
            return QSD(law.rate, law.alpha, generator=key, **options)
        share = self.rank, self.settings.devices
        return RowsOfQSD(law.rate, law.alpha, share, generator=key, **options)


class RowsOfQSD(QSD):
    """QSD of some rows of a batch, with the coefficients that they have in the whole batch.

    ``share`` is (r, n) for the part r, from 0, of n equal ones.
    """

    def __init__(self, p: float, alpha: float, share: tuple[int, int], **options: Any) -> None:
        super().__init__(p, alpha, **options)
        self.share = share

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        rank, ranks = self.share
        # A key draws for an array as a whole: all are drawn, and all but these thrown away.
        ones = input.new_ones((), dtype=torch.float32)  # as the coefficients
        whole = super().forward(ones.expand(ranks * len(input), *input.shape[1:]))
        return (input * whole.chunk(ranks)[rank]).to(input.dtype)
