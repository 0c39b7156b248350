"""QSD for PyTorch: `dilute` for tensors, and layers that take the place of ``torch.nn.Dropout``."""

from quantal.checks import require

require("torch", "torch")

from quantal.torch.functional import dilute  # noqa: E402 - only once torch is known to be there
from quantal.torch.layers import QSD  # noqa: E402
from quantal.torch.maps import QSD1d, QSD2d, QSD3d  # noqa: E402

__all__ = ["QSD", "QSD1d", "QSD2d", "QSD3d", "dilute"]
