"""QSD for PyTorch: `dilute` for tensors, layers in the place of dropout, `convert` for models."""

from quantal.checks import require

require("torch", "torch")

# ruff: noqa: E402 - only once torch is known to be there
from quantal.torch.convert import convert, revert
from quantal.torch.functional import dilute
from quantal.torch.layers import QSD
from quantal.torch.maps import QSD1d, QSD2d, QSD3d
from quantal.torch.monte_carlo import masks_on, predict_mc
from quantal.torch.places import sites

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
