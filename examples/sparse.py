"""Sparse encoding: how the sites' outputs are distributed once a model is trained.

The paper's views B to E. Besides the sites, an experiment may name further places: "site" means
those too. Of a site, a *sample* is an image, a review, or a word of a sequence; a
*unit* is what the layer under test draws for: a feature, or a place of a feature map.

| in ``sparse.npz`` | |
|---|---|
| ``masks-on/1/units`` | site 1, test data, masks on (B): each unit's mean over the samples |
| ``masks-on/1/samples`` | each sample's mean over the units |
| ``masks-on/1/totals`` | mean, variance and mean size of all outputs: `TOTALS` |
| ``masks-off/…`` | test data, masks off (C) |
| ``permuted/…`` | the parts of each test input in random order, masks off (D) |
| ``weights/dense1/kernel`` | values of a trained array (E) |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from examples.run import Run

__all__ = ["SAMPLES", "TOTALS", "VALUES", "VIEWS", "load", "measure", "permute"]

VIEWS = {
    "masks-on": "B: test data, masks on",
    "masks-off": "C: test data, masks off",
    "permuted": "D: permuted inputs, masks off",
}
TOTALS = ("mean", "variance", "absolute")
# What is kept at most, of each site or array: all samples of MNIST, and enough for a histogram.
SAMPLES = 10_000
VALUES = 4_096
# Inputs for one pass: all maps of a wide network for 500 images would fill a gigabyte.
_CHUNK = 100

SiteOutputs = Callable[[Iterable[NDArray], bool], Iterable[list[NDArray]]]


def measure(run: Run, site_outputs: SiteOutputs, weights: dict[str, NDArray]) -> dict[str, NDArray]:
    """Return the measurements as named arrays.

    The test data are passed in chunks, so that memory is bounded however many there are. Totals
    and units are over all of them; of the samples, the first `SAMPLES` are kept, and of more than
    `VALUES` units or weights as many drawn at random, from the run's seed.

    Parameters
    ----------
    run : Run
        Which data, sites and seed.
    site_outputs : function
        From batches of inputs, and whether masks are on, to the outputs of the measured places for
        each batch. A model that carries a state starts anew in every call, and only there.
    weights : dict
        The trained arrays.
    """
    found: dict[str, NDArray] = {}
    # The outputs of a run that diverged overflow: that is to be seen, not to stop the run.
    with np.errstate(over="ignore", invalid="ignore"):
        for view in VIEWS:
            sites = [_Site() for _ in run.experiment.measured]
            inputs = _inputs(run, permuted=view == "permuted")
            for outputs in site_outputs(inputs, view == "masks-on"):
                for site, values in zip(sites, outputs, strict=True):
                    site.add(values)
            for number, site in enumerate(sites, 1):
                for name, values in site.summary(_rng(run)).items():
                    found[f"{view}/{number}/{name}"] = values
        for name, values in weights.items():
            found[f"weights/{name}"] = _some(np.ravel(values), _rng(run))
    return found


def load(folder: Path) -> dict[str, NDArray]:
    """Return what was measured of a run, nothing if nothing was."""
    path = folder / "sparse.npz"
    if not path.exists():
        return {}
    with np.load(path) as arrays:
        return dict(arrays)


def permute(x: NDArray, rng: np.random.Generator) -> NDArray:
    """Reorder the pixels of each image, or the words of each text, each in its own random way.

    Examples
    --------
    >>> mixed = permute(np.array([[3, 1, 4, 1], [5, 9, 2, 6]]), np.random.default_rng(0))
    >>> np.sort(mixed).tolist()
    [[1, 1, 3, 4], [2, 5, 6, 9]]
    """
    places = prod(x.shape[1:3])
    order = rng.permuted(np.tile(np.arange(places), (len(x), 1)), axis=1)
    parts = x.reshape(len(x), places, -1)  # the channels of a pixel stay together
    return np.take_along_axis(parts, order[..., None], axis=1).reshape(x.shape)


def _rng(run: Run) -> np.random.Generator:
    return np.random.default_rng([run.settings.seed, 4])


def _inputs(run: Run, *, permuted: bool) -> Iterator[NDArray]:
    rng = _rng(run)
    for batch in run.evaluation("test"):
        for start in range(0, len(batch.x), _CHUNK):
            x = batch.x[start : start + _CHUNK]
            yield permute(x, rng) if permuted else x


def _some(values: NDArray, rng: np.random.Generator) -> NDArray:
    if len(values) > VALUES:
        values = values[rng.choice(len(values), VALUES, replace=False, shuffle=False)]
    return values.astype(np.float32)


class _Site:
    """The running sums of one site in one view."""

    def __init__(self) -> None:
        self.units = np.zeros(())
        self.samples: list[NDArray] = []
        self.sums = np.zeros(3)
        self.rows = 0

    def add(self, outputs: NDArray) -> None:
        width = outputs.shape[-1] if outputs.ndim == 3 else prod(outputs.shape[1:])
        rows = np.asarray(outputs, np.float32).reshape(-1, width)
        self.units = self.units + rows.sum(axis=0, dtype=np.float64)
        self.samples.append(rows[: max(0, SAMPLES - self.rows)].mean(axis=1, dtype=np.float64))
        sums = [np.sum(part, dtype=np.float64) for part in (rows, rows**2, np.abs(rows))]
        self.sums += sums
        self.rows += len(rows)

    def summary(self, rng: np.random.Generator) -> dict[str, NDArray]:
        mean, square, absolute = self.sums / (self.rows * len(self.units))
        return {
            "units": _some(self.units / self.rows, rng),
            "samples": np.concatenate(self.samples).astype(np.float32),
            "totals": np.array([mean, square - mean**2, absolute]),
        }
