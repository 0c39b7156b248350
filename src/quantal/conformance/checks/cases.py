"""The settings of the checks that need only a small array.

They are few and the same everywhere: a framework that compiles does so once for each.
"""

from __future__ import annotations

from quantal.conformance.adapter import Settings

INF = float("inf")

SMALL = (64, 10, 8)
"""Enough units that a chance event which a check rules out is rarer than 10⁻¹⁵."""

PLAIN = Settings(0.5, 1.0)
DRAWS = (
    PLAIN,
    Settings(0.3, INF),
    Settings(0.5, 1.0, broadcast_dims=(1,)),
    Settings(0.5, 1.0, p_broadcast_dims=(0,)),
)
"""A draw of each kind: QSD, dropout, shared coefficients, shared probabilities."""

EXTREMES = (
    (Settings(0.5, 1e-3), "float16"),
    (Settings(0.5, 1e-3), "bfloat16"),
    (Settings(0.5, 1e-3), "float64"),
    (Settings(0.5, 1e-3, vary="q"), "float32"),
    (Settings(0.5, 1e-3, p_broadcast_dims=(0,)), "float16"),
    (Settings(0.9, 1e6), "float16"),
)
"""The ends of the ranges, and the dtypes that suffer there."""
