"""The soak: it resumes, counts alarms, and prints lines that replay them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.soak import main
from quantal import conformance


def test_it_resumes_and_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "soak.jsonl"
    old = {"adapter": "numpy", "seed": 1, "failures": ["mean"], "seconds": 1.0}
    state.write_text(json.dumps(old) + "\n")
    full = conformance.run
    monkeypatch.setattr(conformance, "run", lambda *a, **k: full(*a, **k, only="bad-input"))
    assert main(["numpy", "numpy-key", "--runs", "3", "--state", str(state)]) == 1
    done = [json.loads(line) for line in state.read_text().splitlines()]
    assert [one["adapter"] for one in done] == ["numpy", "numpy-key", "numpy"]
    assert len({one["seed"] for one in done}) == 3
    assert "1 alarms in 3 runs" in capsys.readouterr().out
