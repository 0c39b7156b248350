"""The conformance kit on the fused path, in Triton's interpreter."""

import pytest

from quantal.conformance import run
from quantal.conformance.adapters import load
from quantal.torch import _launch, _self_check

# What would be wrong if the kernels, or their way into torch, were. All of the kit takes minutes
# here; `quantal conform torch --device cuda` asks all of it on a device.
STREAM = ("determinism", "layer-determinism", "global-state", "seeds-independent")
WHOLE = (
    *STREAM,
    *("kept-values", "second-moment", "vary-q", "unit-mean", "samples-independent"),
    *("broadcast-dims", "backward-same-draw", "linearity", "dtype-kept", "half-precision"),
)


@pytest.fixture
def wide_tiles(monkeypatch, on_cpu):
    """Tiles as large as the kit's calls: the interpreter takes almost as long for a small one.

    They are another stream by the same code; that of real tiles is NumPy's bit for bit, by
    test_streams.
    """
    monkeypatch.setattr(_launch, "LANES", 2**14)
    monkeypatch.setattr(_self_check, "_found", {})


@pytest.mark.usefixtures("wide_tiles")
@pytest.mark.parametrize(
    ("spec", "checks"), [("torch", WHOLE), ("torch-generator", STREAM), ("torch-key", STREAM)]
)
def test_the_kit_passes(spec, checks):
    report = run(load(spec), only=checks, quick=True)
    assert report.passed, report.to_text()
