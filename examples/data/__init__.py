"""The data sets, as NumPy arrays; nothing here knows a framework."""

from examples.data.batches import Batch, batches, steps
from examples.data.sets import Data, Split, load

__all__ = ["Batch", "Data", "Split", "batches", "load", "steps"]
