"""A right implementation by tables, as in the guide: fast, so that mutants of it are too."""

from __future__ import annotations

import numpy as np
from recipe import RNG, Recipe, Shape

import quantal.numpy
from quantal.conformance._adapter import Array, Settings
from quantal.dilution import Dilution
from quantal.keys import LEVELS
from quantal.table import table


class Port(Recipe):
    """Each unit looks its coefficient up in a cell of a table; a mutant spoils cells or law."""

    def coefficients(
        self, s: Settings, mask_shape: Shape, p_shape: Shape | None, rng: RNG
    ) -> Array:
        law = self.law(s)
        if p_shape is not None:
            return quantal.numpy.coefficients(law, mask_shape, p_shape, rng)
        drawn = table(law)
        row = int(rng.integers(LEVELS) < drawn.threshold)
        return drawn.values[row, self.cells(s, mask_shape, rng)]

    def law(self, s: Settings) -> Dilution:
        return s.law

    def cells(self, s: Settings, shape: Shape, rng: RNG) -> Array:
        return rng.integers(2**16, size=shape, dtype=np.uint16)
