"""The literal recipe of the paper on trial: p, then m, then q."""

from __future__ import annotations

from typing import Any

import numpy as np

import quantal
from quantal import Dilution
from quantal._errors import FLOATING, wrong_type
from quantal.conformance._adapter import Array
from quantal.reference import backward, draw, forward

__all__ = ["adapter"]


class _Reference:
    """``quantal.reference``, with the shortcuts that every layer takes."""

    name = "reference"
    version = quantal.__version__

    def apply(self, x: Array, *, seed: int, **settings: Any) -> Array:
        return self.grad(x, x, seed=seed, **settings)[0]

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        return self._step(x, upstream, np.random.default_rng(seed), **settings)

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [self._step(x, x, rng, **settings)[0] for _ in range(count)]

    @staticmethod
    def _step(
        x: Array,
        upstream: Array,
        rng: np.random.Generator,
        *,
        rate: float,
        alpha: float,
        training: bool,
        broadcast_dims: tuple[int, ...],
        p_broadcast_dims: tuple[int, ...],
        **law: Any,
    ) -> tuple[Array, Array]:
        if not np.issubdtype(x.dtype, np.floating):
            raise wrong_type("x", FLOATING, x.dtype)
        drawn = draw(
            Dilution(rate, alpha, **law),
            x.shape,
            rng,
            broadcast_dims=broadcast_dims,
            p_broadcast_dims=p_broadcast_dims,
        )
        if not training:
            return x, upstream
        return forward(x, drawn), backward(upstream, drawn)


adapter = _Reference()
