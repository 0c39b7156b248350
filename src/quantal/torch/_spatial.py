"""QSD of whole feature maps, in the place of ``torch.nn.Dropout1d``, ``2d`` and ``3d``."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from quantal._errors import wrong_value
from quantal._granularity import Axes
from quantal.torch._layers import DilutionLayer

__all__ = ["QSD1d", "QSD2d", "QSD3d", "map_axes_as_torch"]


def map_axes_as_torch(ndim: int, batch: int | None) -> tuple[int, ...]:
    """Return the axes of a feature map as torch's own dropout of channels takes them.

    Parameters
    ----------
    ndim : int
        The number of axes of the input.
    batch : int or None
        How many axes torch takes for a batch; any other input is a single sample to it. If this is
        None, every input is a batch.

    Examples
    --------
    >>> map_axes_as_torch(4, None), map_axes_as_torch(4, batch=5)
    ((2, 3), (1, 2, 3))
    """
    return tuple(range(2 if batch in (None, ndim) else 1, ndim))


class _Maps(DilutionLayer):
    """One coefficient for each channel of each sample."""

    axes: ClassVar[tuple[str, ...]]
    batch: ClassVar[int | None]  # to torch's own layer, see `map_axes_as_torch`

    def __init__(
        self,
        p: float | None = None,
        alpha: float | None = None,
        inplace: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(p, alpha, inplace, broadcast_dims=self._own_dims, **options)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._own_dims = tuple(range(-len(cls.axes), 0))

    def _dims_for(self, input: Tensor) -> Axes:
        if self._native is not None:  # what torch's layer has accepted here must go on to work
            return map_axes_as_torch(input.ndim, self.batch)
        if input.ndim - len(self.axes) not in (1, 2):
            maps = ", ".join(("C", *self.axes))
            raise wrong_value("x", f"a tensor of shape ({maps}) or (N, {maps})", tuple(input.shape))
        return self.broadcast_dims


class QSD1d(_Maps, nn.Dropout1d):
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
    batch = 3


class QSD2d(_Maps, nn.Dropout2d):
    """QSD with one coefficient per channel of an input (C, H, W) or (N, C, H, W).

    Parameters are those of `QSD` without ``broadcast_dims``.

    Examples
    --------
    >>> QSD2d(0.5, 1.0)
    QSD2d(p=0.5, alpha=1.0, inplace=False)
    """

    axes = ("H", "W")
    batch = None  # three axes are (N, C, L) to torch


class QSD3d(_Maps, nn.Dropout3d):
    """QSD with one coefficient per channel of an input (C, D, H, W) or (N, C, D, H, W).

    Parameters are those of `QSD` without ``broadcast_dims``.

    Examples
    --------
    >>> QSD3d(0.5, 1.0)
    QSD3d(p=0.5, alpha=1.0, inplace=False)
    """

    axes = ("D", "H", "W")
    batch = 5
