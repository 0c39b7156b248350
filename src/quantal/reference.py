"""The paper's recipe, word for word in NumPy: the arbiter of everything faster.

Each coefficient is drawn in four steps, in the paper's order and with its letters: a retain
probability p, a mask m, a rescaling size q, and their product c. Nothing here is clever, and
nothing in the package but tests and the conformance kit calls it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from quantal._arguments import array, broadcasts, instance
from quantal._arguments import shape as checked_shape
from quantal._errors import FLOATING, wrong_value
from quantal._granularity import Axes, coefficient_shapes
from quantal.dilution import Dilution

__all__ = ["Draw", "backward", "draw", "forward"]


class Draw(NamedTuple):
    """One draw of the recipe; the arrays broadcast against the input."""

    p: NDArray[np.float64]
    m: NDArray[np.bool_]
    q: NDArray[np.float64]
    c: NDArray[np.float64]


def draw(
    dilution: Dilution,
    shape: tuple[int, ...],
    rng: np.random.Generator,
    *,
    broadcast_dims: Axes = (),
    p_broadcast_dims: Axes = (),
) -> Draw:
    """Draw p, m, q and c for an input of the given shape.

    Parameters
    ----------
    dilution : Dilution
        The parameters.
    shape : tuple of int
        The shape of the input.
    rng : numpy.random.Generator
        The source of randomness.
    broadcast_dims : int or tuple of int
        Axes along which one coefficient is shared.
    p_broadcast_dims : int or tuple of int
        Axes along which p, and so q, is shared, while masks stay independent.

    Examples
    --------
    >>> p, m, q, c = draw(Dilution(0.5, 1.0), (2, 3), np.random.default_rng(0))
    >>> bool((c == q * m).all())
    True
    """
    instance("dilution", dilution, Dilution, "a quantal.Dilution")
    instance("rng", rng, np.random.Generator, "a numpy.random.Generator")
    shape = checked_shape("shape", shape)
    mask_shape, p_shape = coefficient_shapes(shape, broadcast_dims, p_broadcast_dims)
    if p_shape is None:
        p_shape = mask_shape
    mean_p = dilution.retain

    if dilution.rate in (0, 1) or not 0 < dilution.beta < np.inf or dilution.alpha > 1e300:
        p = np.full(p_shape, mean_p)  # to every digit, where there is no beta distribution
    else:
        p = rng.beta(dilution.alpha, dilution.beta, size=p_shape)

    mask_probability = mean_p if dilution.vary == "q" else p
    m = rng.random(mask_shape) < mask_probability

    if dilution.rate == 1:
        q = np.zeros(p_shape)  # the mask is empty, and 1/p̄ is not a number
    elif dilution.vary == "p":
        q = np.full(p_shape, 1 / mean_p)
    else:
        q = p / mean_p**2

    c = q * m
    if dilution.unit_mean and dilution.rate < 1:
        c = c / Dilution(dilution.rate, dilution.alpha, vary=dilution.vary).mean
    return Draw(*map(np.asarray, (p, m, q, c)))  # for the shape (), NumPy made numbers of them


def forward(x: NDArray[Any], drawn: Draw) -> NDArray[Any]:
    """Return y = c ⊙ x in the input's own precision.

    Examples
    --------
    >>> drawn = draw(Dilution(0.5, 1.0), (2, 3), np.random.default_rng(0))
    >>> bool(np.all(forward(np.ones((2, 3)), drawn) == drawn.c))
    True
    """
    return _product("x", x, drawn)


def backward(upstream: NDArray[Any], drawn: Draw) -> NDArray[Any]:
    """Return the gradient with respect to x: the same coefficients times the upstream gradient."""
    return _product("upstream", upstream, drawn)


def _product(name: str, x: NDArray[Any], drawn: Draw) -> NDArray[Any]:
    array(name, x, FLOATING)
    expected = "what reference.draw returns"
    c = instance("drawn", instance("drawn", drawn, Draw, expected).c, np.ndarray, expected)
    if not broadcasts(c.shape, x.shape):
        raise wrong_value(name, f"an array that coefficients of shape {c.shape} fit", x.shape)
    with np.errstate(invalid="ignore"):  # what is dropped is 0, even if it was not finite
        return np.where(c == 0, 0, np.multiply(x, c)).astype(x.dtype)
