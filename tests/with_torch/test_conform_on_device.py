"""``quantal conform torch --device``: the kit on a device, its bits and its speed."""

import pytest

from quantal.conformance import _on_device
from quantal.conformance._cli import main

FAST = ("--only", "eval-identity", "--only", "determinism")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(_on_device, "_SIZES", (64,))
    monkeypatch.setattr(_on_device, "_SECONDS", 1e-4)


@pytest.mark.parametrize("adapter", ["torch", "torch-generator", "torch-key"])
def test_a_device_that_is_right(adapter, capsys):
    assert main([adapter, "--device", "cpu", *FAST]) == 0
    printed = capsys.readouterr().out
    assert f"{adapter} on cpu 0.1.0: PASSED, 2 of 2 checks passed" in printed
    assert "keys: cpu draws what a CPU draws, bit for bit" in printed
    assert "QSD by torch's own operations" in printed
    assert "ratio" in printed


def test_a_device_with_other_bits(capsys, monkeypatch):
    both, calls = _on_device._both, []

    def sometimes_wrong(x, *rest):
        calls.append(x)
        output, gradient = both(x, *rest)
        return output, gradient + (len(calls) == 6)  # the third pair's second

    monkeypatch.setattr(_on_device, "_both", sometimes_wrong)
    assert main(["torch", "--device", "cpu", *FAST]) == 1
    printed = capsys.readouterr().out
    assert printed.count("keys: other bits for ()") == 1
    assert "bit for bit" not in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["numpy", "--device", "cpu"], "--device: expected an adapter of torch: numpy"),
        (
            ["torch", "--device", "nowhere"],
            "device: expected a device of torch that is here (Expected one of cpu, ",
        ),
        (
            ["torch", "--device", "meta"],
            "device: expected a device of torch that is here (Cannot copy out of meta tensor",
        ),
    ],
)
def test_usage_errors(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err
