"""The places of a model as `sites` lists them."""

import math

import numpy as np
import pytest

from quantal import Dilution
from quantal.sites import Site, Sites

UNREACHED = Site("head", "alpha_dropout", 0.1, unreached="another law")


def test_the_table_names_what_is_out_of_reach():
    text = repr(Sites([UNREACHED, Site("", "QSD", 0.5, 1.0)]))
    assert "out of reach: another law" in text
    assert "(model)" in text
    assert text.endswith("2 sites, 1 of them QSD")


@pytest.mark.parametrize(
    "law",
    [Dilution(0.5, 1.0), Dilution(0.5, 1.0, vary="q"), Dilution(0.5, 1.0, unit_mean=True)],
)
def test_the_mean_gain_is_that_of_the_law(law):
    assert Site.of("a", "QSD", law).mean_gain == law.mean


def test_the_mean_gain_of_dropout_and_of_what_cannot_be_read():
    assert Site("a", "Dropout", 0.5).mean_gain == 1
    assert math.isnan(Site("a", "QSD", math.nan, 1.0).mean_gain)
    assert math.isnan(Site("a", "QSD", 0.5, math.nan).mean_gain)


@pytest.mark.parametrize(
    ("number", "read"),
    [
        (1, 1.0),
        (np.float32(0.5), 0.5),
        (np.array([0.5, 0.5]), 0.5),
        (np.array([0.1, 0.5]), math.nan),
        ("0.5x", math.nan),
        (object(), math.nan),
    ],
)
def test_rates_and_alphas_may_be_arrays(number, read):
    site = Site("a", "QSD", number, number)
    assert type(site.rate) is float
    np.testing.assert_equal((site.rate, site.alpha), (read, read))
