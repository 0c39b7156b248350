"""An adapter from a layer: what frameworks differ in is four small methods."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import quantal
from quantal.conformance._adapter import Array

__all__ = ["DTYPES", "LayerAdapter"]

DTYPES: tuple[str, ...] = ("float16", "float32", "float64")
if importlib.util.find_spec("ml_dtypes"):  # comes with JAX and TensorFlow
    DTYPES += ("bfloat16",)


class LayerAdapter(ABC):
    """An adapter for a layer of some framework."""

    name: str
    version = quantal.__version__
    dtypes = DTYPES

    @abstractmethod
    def layer(
        self, *, seed: int, training: bool, rate: float, alpha: float, **settings: Any
    ) -> Callable[[Any], Any]:
        """Return a seeded layer as a function of a tensor; each call draws anew."""

    @abstractmethod
    def tensor(self, x: Array) -> Any:
        """Return an array as a tensor of the same dtype."""

    @abstractmethod
    def array(self, x: Any) -> Array:
        """Return a tensor as an array of the same dtype."""

    @abstractmethod
    def vjp(self, f: Callable[[Any], Any], x: Any, upstream: Any) -> tuple[Any, Any]:
        """Return f(x) and the gradient of sum(f(x)·upstream)."""

    def apply(self, x: Array, *, seed: int, **settings: Any) -> Array:
        """Call a layer once."""
        return self.calls(x, count=1, seed=seed, **settings)[0]

    def calls(self, x: Array, *, count: int, seed: int, **settings: Any) -> list[Array]:
        """Call one layer many times."""
        layer = self.layer(seed=seed, **settings)
        return [self.array(layer(self.tensor(x))) for _ in range(count)]

    def grad(self, x: Array, upstream: Array, *, seed: int, **settings: Any) -> tuple[Array, Array]:
        """Call a layer once, forwards and backwards."""
        layer = self.layer(seed=seed, **settings)
        output, gradient = self.vjp(layer, self.tensor(x), self.tensor(upstream))
        return self.array(output), self.array(gradient)
