"""The layer under test, at each site of a model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from examples.run import Run
from quantal.keys import Key
from quantal.torch import QSD

__all__ = ["sites"]


def sites(run: Run) -> list[nn.Module]:
    """Return the layers of a run's sites, in the order of the pass."""
    return [_site(run, *each) for each in zip(run.experiment.sites, run.keys, strict=True)]


def _site(run: Run, name: str, key: Key) -> nn.Module:
    settings, law, words = run.settings, run.settings.dilution, name == "words"
    if law is None:
        return nn.Identity()
    portable = settings.stream == "portable"
    if settings.layer == "dropout" and not portable:
        # Of an input (batch, words, features), Dropout1d drops words.
        return (nn.Dropout1d if words else nn.Dropout)(law.rate)
    options: dict[str, Any] = {
        "vary": law.vary,
        "unit_mean": law.unit_mean,
        "broadcast_dims": -1 if words else (),
        "p_broadcast_dims": settings.p_broadcast_dims,
    }
    if not portable:
        return QSD(law.rate, law.alpha, **options)
    if settings.devices == 1:
        return QSD(law.rate, law.alpha, generator=key, **options)
    share = run.rank, settings.devices
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
