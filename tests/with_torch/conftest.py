"""Fixtures for the tests of the PyTorch adapter."""

import pytest


@pytest.fixture(params=[0, 2**62], ids=["look up again", "keep"])
def both_ways_back(request, monkeypatch):
    """Have tensors of any size looked up again for the backward pass, or have them kept."""
    from quantal.torch import _apply

    monkeypatch.setattr(_apply, "_FEW", request.param)
