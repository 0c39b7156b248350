"""The implementation on trial: its calls, its draws, and the seeds it is given."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from quantal.conformance.adapter import Adapter, Array, Settings, SupportsCalls
from quantal.dilution import Dilution

__all__ = ["FLAT", "SHAPE", "ConformanceError", "Subject"]

SHAPE = (32, 64, 64)
"""Samples, channels and time steps of the calls in which independence is looked for."""

FLAT = (64, 2048)
"""As many units for all other statistics: compilers are quicker with fewer axes."""

Floats = NDArray[np.float64]
Shape = tuple[int, ...]


class ConformanceError(Exception):
    """The implementation did something that no right one does."""


class Subject:
    """An adapter, with its draws kept so that checks can share them."""

    def __init__(self, adapter: Adapter, seed: int) -> None:
        self.adapter = adapter
        self.seed = seed
        self._pools: dict[tuple[Dilution, Shape], Floats] = {}

    def seeds(self, label: str, count: int, start: int = 0) -> list[int]:
        """Return seeds for the adapter: far apart, and the same for the same run and label."""
        return [self._seed(label, index) for index in range(start, start + count)]

    def _seed(self, label: str, index: int) -> int:
        entropy = (self.seed, zlib.crc32(label.encode()), index)
        return int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1

    def rng(self, label: str) -> np.random.Generator:
        """Return a generator for the kit's own inputs."""
        return np.random.default_rng(self._seed(label, 0))

    # --- calls ---------------------------------------------------------------------------------

    def apply(self, x: Array, settings: Settings, seed: int) -> Array:
        """Return the adapter's output, having seen that it is an array of the right shape."""
        return _output(x, self.adapter.apply(x, **asdict(settings), seed=seed), "apply")

    def grad(self, x: Array, upstream: Array, settings: Settings, seed: int) -> tuple[Array, Array]:
        """Return the adapter's output and gradient, both of the right shape."""
        pair = self.adapter.grad(x, upstream, **asdict(settings), seed=seed)
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ConformanceError(f"grad returned {type(pair).__name__}, not (output, gradient)")
        return _output(x, pair[0], "grad's output"), _output(x, pair[1], "grad's gradient")

    @property
    def has_calls(self) -> bool:
        """Whether the adapter can call one layer many times."""
        return isinstance(self.adapter, SupportsCalls)

    def calls(self, x: Array, settings: Settings, seed: int, count: int) -> Sequence[Array]:
        """Return the outputs of successive calls of one layer."""
        assert isinstance(self.adapter, SupportsCalls)
        outputs = self.adapter.calls(x, count=count, **asdict(settings), seed=seed)
        if len(outputs) != count:
            raise ConformanceError(f"calls returned {len(outputs)} outputs for count={count}")
        return [_output(x, output, "calls") for output in outputs]

    # --- draws ---------------------------------------------------------------------------------

    def draw(
        self, settings: Settings, seed: int, shape: Shape, dtype: DTypeLike = np.float32
    ) -> Floats:
        """Return the coefficients of one call: what becomes of an array of ones."""
        drawn = self.apply(np.ones(shape, dtype), settings, seed).astype(np.float64)
        if not np.isfinite(drawn).all():
            raise ConformanceError(f"coefficients that are not finite, at {settings}")
        return drawn

    def coefficients(self, law: Dilution, units: int, shape: Shape = SHAPE) -> Floats:
        """Return coefficients of at least so many units as an array (calls, *shape).

        Each call has a seed of its own. The draws of a law are kept: asking again returns the
        same ones, so statements about them are not independent of each other, which a budget
        divided by the union bound does not need.
        """
        pool = self._pools.get((law, shape), np.empty((0, *shape)))
        calls = -(-units // math.prod(shape))
        if len(pool) < calls:
            seeds = self.seeds(f"{law} {shape}", calls - len(pool), start=len(pool))
            drawn = [self.draw(Settings.of(law), seed, shape) for seed in seeds]
            pool = self._pools[law, shape] = np.concatenate([pool, drawn])
        return pool[:calls]  # and no more: what was drawn before must not change the answer

    def units(self, law: Dilution, count: int, shape: Shape = FLAT) -> Floats:
        """Return the coefficients of exactly so many units, flat."""
        return self.coefficients(law, count, shape).reshape(-1)[:count]


def _output(x: Array, output: Any, what: str) -> Array:
    if not isinstance(output, np.ndarray):
        raise ConformanceError(f"{what}: expected a NumPy array, received {type(output).__name__}")
    if output.shape != x.shape:
        raise ConformanceError(f"{what}: expected the shape {x.shape}, received {output.shape}")
    return output
