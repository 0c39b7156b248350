"""QSD for PyTorch: `dilute` for tensors, layers in the place of dropout, `convert` for models."""

from quantal._errors import require

require("torch", "torch")

# ruff: noqa: E402 - only once torch is known to be there
from quantal.torch._convert import convert, revert
from quantal.torch._find_sites import sites
from quantal.torch._functional import dilute
from quantal.torch._layers import QSD
from quantal.torch._monte_carlo import masks_on, predict_mc
from quantal.torch._spatial import QSD1d, QSD2d, QSD3d

__all__ = [
    "QSD",
    "QSD1d",
    "QSD2d",
    "QSD3d",
    "convert",
    "dilute",
    "masks_on",
    "predict_mc",
    "revert",
    "sites",
]
