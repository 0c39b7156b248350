"""Who draws the right law: samples of every implementation against the exact one.

The Kolmogorov distance is the largest difference between the share of samples up to c and the
probability of it. Values that agree to six digits count as equal, so that no one is blamed for the
rounding of float32; NaN is never up to anything, so that its share shows as a distance.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import quantal
from benchmarks.harness import Task
from benchmarks.store import Row

__all__ = ["ALPHAS", "DRAWS", "RATES", "SAMPLERS", "distance", "floor", "measure"]

RATES = (0.2, 0.5)
ALPHAS = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1e3)
DRAWS = 2**18
SAME = 2.0**-20  # relative; some units in the last place of float32

SAMPLERS = OURS, GAMMAS, BETA = "quantal", "two gammas", "Beta sampler"
Sampler = Callable[[quantal.Dilution, int], Any]


def distance(c: NDArray[Any], law: quantal.Dilution) -> float:
    """Return the Kolmogorov distance of samples to the law."""
    values, counts = np.unique(c[~np.isnan(c)].astype(np.float64), return_counts=True)
    up_to = np.cumsum(counts) / c.size
    below = up_to - counts / c.size
    above_law = up_to - law.cdf(values * (1 + SAME))
    # Just below 0 there is nothing, and beyond the last value everything.
    below_law = np.where(values > 0, law.cdf(values * (1 - SAME)), 0) - below
    missing = 1 - (up_to[-1] if len(values) else 0)
    return float(max(0, *above_law, *below_law, missing))


def floor(draws: int, comparisons: int, alarm: float = 0.01) -> float:
    """Return what the distance of a right law exceeds in one of so many only with that chance.

    By the inequality of Dvoretzky, Kiefer, Wolfowitz and Massart.
    """
    return sqrt(log(2 * comparisons / alarm) / (2 * draws))


def measure(task: Task) -> list[Row]:
    """Draw, in the framework that is the task's subject."""
    framework = task.subject.partition("-")[0] or "numpy"
    samplers: dict[str, Sampler] = globals()[f"_{framework}"]()
    draws = 2**10 if task.quick else DRAWS
    return [
        _row(task.subject, name, sample, quantal.Dilution(rate, alpha), draws)
        for name, sample in samplers.items()
        for rate in (RATES[:1] if task.quick else RATES)
        for alpha in (ALPHAS[::3] if task.quick else ALPHAS)
    ]


def _row(subject: str, name: str, sample: Sampler, law: quantal.Dilution, draws: int) -> Row:
    c = np.asarray(sample(law, draws)).astype(np.float64)
    finite = c[np.isfinite(c)]
    what = {"framework": subject, "sampler": name, "rate": law.rate, "alpha": law.alpha}
    values = {"draws": draws, "nan": float(np.mean(~np.isfinite(c))), "distance": distance(c, law)}
    for k in (1, 2):
        # In standard errors of a right sample's mean, and relative.
        exact = law.moment(k)
        error = float(np.mean(finite**k)) - exact if finite.size else -exact
        values[f"moment {k}"] = error / exact
        values[f"z {k}"] = error / sqrt((law.moment(2 * k) - exact**2) / draws)
    return Row(what, values)


def _numpy() -> dict[str, Sampler]:
    from quantal import reference

    rng = np.random.default_rng(0)

    def two_gammas(law: quantal.Dilution, n: int) -> NDArray[Any]:
        a = rng.standard_gamma(law.alpha, n, np.float32)
        b = rng.standard_gamma(law.beta, n, np.float32)
        with np.errstate(invalid="ignore"):
            p = a / (a + b)
        return p * (rng.random(n, np.float32) < p) / law.retain**2

    return {
        OURS: lambda law, n: quantal.dilute(_ones(n), law.rate, law.alpha, rng=rng),
        GAMMAS: two_gammas,
        BETA: lambda law, n: reference.draw(law, (n,), rng).c,
    }


def _torch() -> dict[str, Sampler]:
    import torch

    from benchmarks import with_torch

    torch.manual_seed(0)
    return {
        OURS: lambda law, n: quantal.dilute(torch.ones(n), law.rate, law.alpha),
        GAMMAS: lambda law, n: with_torch.two_gammas(torch.ones(n), law),
        BETA: lambda law, n: with_torch.beta(torch.ones(n), law),
    }


def _jax() -> dict[str, Sampler]:
    import jax

    from benchmarks import with_jax

    key = jax.random.key(0)
    # The parameters are no constants of the program, so that it is compiled once.
    gammas, beta = (
        jax.jit(lambda x, a, b, r, draw=draw: draw(x, key, _Numbers(a, b, r)))
        for draw in (with_jax.two_gammas, with_jax.beta)
    )
    return {
        OURS: lambda law, n: quantal.dilute(jax.numpy.ones(n), law.rate, law.alpha, rng=key),
        GAMMAS: lambda law, n: gammas(_ones(n), law.alpha, law.beta, law.retain),
        BETA: lambda law, n: beta(_ones(n), law.alpha, law.beta, law.retain),
    }


def _keras() -> dict[str, Sampler]:
    import keras

    from benchmarks import with_keras
    from quantal.keras import QSD

    def by(make: Callable[[quantal.Dilution], Any]) -> Sampler:
        return lambda law, n: keras.ops.convert_to_numpy(
            make(law)(keras.ops.ones(n), training=True)
        )

    return {
        OURS: by(lambda law: QSD(law.rate, law.alpha, seed=1)),
        GAMMAS: by(lambda law: with_keras.Masked(with_keras.two_gammas, law)),
        BETA: by(lambda law: with_keras.Masked(with_keras.beta, law)),
    }


class _Numbers(NamedTuple):
    """What the recipes read of a law, where its numbers are known only on the device."""

    alpha: Any
    beta: Any
    retain: Any


def _ones(n: int) -> NDArray[np.float32]:
    return np.ones(n, np.float32)
