"""The conformance kit on the fused path, in Triton's interpreter."""

import pytest

from quantal.conformance import _on_device, run
from quantal.conformance._cli import main
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


@pytest.mark.usefixtures("on_cpu")
def test_the_command_for_a_device_tells_that_the_kernels_are_used(monkeypatch, capsys):
    monkeypatch.setattr(_on_device, "_SHAPES", ((), (5, 7), (2, 520)))
    monkeypatch.setattr(_on_device, "_SIZES", (64,))
    monkeypatch.setattr(_on_device, "_SECONDS", 1e-4)
    cpu, calls = _on_device._both, []

    def by_turns(x, *rest):
        """Without the kernels and with them, as if these were two devices."""
        calls.append(x)
        with pytest.MonkeyPatch.context() as patch:
            if len(calls) % 2:
                patch.setattr(_self_check, "DEVICES", set())
            return cpu(x, *rest)

    monkeypatch.setattr(_on_device, "_both", by_turns)
    assert main(["torch", "--device", "cpu", "--only", "eval-identity"]) == 0
    printed = capsys.readouterr().out
    assert "keys: cpu draws what a CPU draws, bit for bit" in printed
    assert "QSD by one fused kernel a pass" in printed
