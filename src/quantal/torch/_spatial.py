"""QSD of whole feature maps, in the place of ``torch.nn.Dropout1d``, ``2d`` and ``3d``."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from quantal._errors import wrong_value
from quantal.torch._layers import QSD

__all__ = ["QSD1d", "QSD2d", "QSD3d"]


class _Maps(QSD):
    """One coefficient for each channel of each sample."""

    axes: ClassVar[tuple[str, ...]]

    def __init__(
        self, p: float = 0.5, alpha: float | None = None, inplace: bool = False, **options: Any
    ) -> None:
        super().__init__(p, alpha, inplace, broadcast_dims=self._own_dims, **options)

    def __init_subclass__(cls) -> None:
        cls._own_dims = tuple(range(-len(cls.axes), 0))

    def forward(self, input: Tensor) -> Tensor:
        # torch's own layers guess here: Dropout2d takes (C, H, W) for (N, C, L).
        if input.ndim - len(self.axes) not in (1, 2):
            maps = ", ".join(("C", *self.axes))
            raise wrong_value("x", f"a tensor of shape ({maps}) or (N, {maps})", tuple(input.shape))
        return super().forward(input)


class QSD1d(_Maps):
    """QSD with one coefficient per channel of an input (C, L) or (N, C, L).

    Parameters are those of `QSD` without ``broadcast_dims``.

    Examples
    --------
    >>> import torch
    >>> y = QSD1d(0.5, 1.0)(torch.ones(4, 3, 8))
    >>> bool((y == y[..., :1]).all())
    True
    """

    axes = ("L",)


class QSD2d(_Maps):
    """QSD with one coefficient per channel of an input (C, H, W) or (N, C, H, W).

    Parameters are those of `QSD` without ``broadcast_dims``.

    Examples
    --------
    >>> QSD2d(0.5, 1.0)
    QSD2d(p=0.5, alpha=1.0, inplace=False)
    """

    axes = ("H", "W")


class QSD3d(_Maps):
    """QSD with one coefficient per channel of an input (C, D, H, W) or (N, C, D, H, W).

    Parameters are those of `QSD` without ``broadcast_dims``.

    Examples
    --------
    >>> QSD3d(0.5, 1.0)
    QSD3d(p=0.5, alpha=1.0, inplace=False)
    """

    axes = ("D", "H", "W")
