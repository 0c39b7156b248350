"""The conformance kit on the fused path, in Triton's interpreter."""

import pytest

from quantal.conformance import run
from quantal.conformance.adapters import load
from quantal.torch import _launch, _self_check


@pytest.fixture
def wide_tiles(monkeypatch, on_cpu):
    """Tiles as large as the kit's calls: the interpreter takes almost as long for a small one.

    They are another stream by the same code; that of real tiles is NumPy's bit for bit, by
    test_streams.
    """
    monkeypatch.setattr(_launch, "LANES", 2**14)
    monkeypatch.setattr(_self_check, "_found", {})


@pytest.mark.usefixtures("wide_tiles")
@pytest.mark.parametrize("spec", ["torch", "torch-generator", "torch-key"])
def test_the_kit_passes(spec):
    report = run(load(spec), quick=True)
    assert report.passed, report.to_text()
