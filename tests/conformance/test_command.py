"""``quantal conform``: exit codes, reports, progress."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from quantal.conformance._cli import main

FAST = ("--only", "bad-input", "--only", "mean")


def test_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["numpy", *FAST]) == 0
    printed = capsys.readouterr()
    assert "numpy 0.1.0: PASSED, 2 of 2 checks passed" in printed.out
    assert "✓  mean" in printed.out
    assert "numpy: 2 checks" in printed.err


def test_failure_names_the_check_and_replays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from quantal.conformance.adapters.numpy import _Native\n"
        "class Wrong(_Native):\n"
        "    name = 'wrong'\n"
        "    def apply(self, x, **s): return (1.01 * super().apply(x, **s)).astype(x.dtype)\n"
    )
    (tmp_path / "a_wrong_port.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["a_wrong_port:Wrong", *FAST, "--seed", "7"]) == 1
    printed = capsys.readouterr().out
    replay = "quantal conform a_wrong_port:Wrong --only mean --budget 1e-06 --seed 7"
    assert f"replay: {replay}" in printed
    assert "FAILED mean: E[c] = 1 + rate/(α + 1 − rate)" in printed
    first = printed
    assert main(replay.split()[2:]) == 1
    again = capsys.readouterr().out
    detail = next(line for line in first.splitlines() if "saw" in line)
    assert detail in again


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-adapter"], "adapter: expected a built-in adapter"),
        (["no.such.module:adapter"], "No module named"),
        (["quantal.conformance.adapters.numpy:nothing"], "nothing"),
        (["numpy", "--only", "nothing"], "only: expected names of checks"),
        (["numpy", "--budget", "2"], "budget: expected"),
        (["numpy", "reference", "--jobs", "0"], "--jobs: expected 1 or more: 0"),
        (["numpy", "--report", "report.pdf"], "--report: expected"),
        (["numpy", "--report", "no/such/folder/a.md"], "--report: expected a file in a folder"),
        (["numpy", "--report", f"{__file__}/a.md"], "--report: expected a file in a folder"),
        ([], "no adapter was named"),
    ],
)
def test_usage_errors(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "start", [["-m", "quantal", "conform"], ["-m", "quantal.conformance"]], ids=["quantal", "kit"]
)
def test_a_file_of_the_folder_takes_no_framework_place(tmp_path: Path, start: list[str]) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch.py of the folder was run')")
    command = [sys.executable, *start, "torch", "--only", "bad-input"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "of the folder was run" not in done.stdout + done.stderr
    assert done.returncode == 0 or "No module named 'torch'" in done.stderr


def test_the_folder_comes_last_and_for_adapters_of_your_own_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_port.py").write_text(
        "from quantal.conformance.adapters.numpy import native as adapter"
    )
    monkeypatch.chdir(tmp_path)
    usual = [path for path in sys.path if path not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *usual])
    assert main(["numpy", "--only", "bad-input"]) == 0
    assert sys.path == usual
    assert main(["a_port:adapter", "--only", "bad-input"]) == 0
    assert sys.path == [*usual, str(tmp_path)]


def test_several_adapters_and_one_report(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.md"
    assert main(["numpy", "reference", *FAST, "--jobs", "2", "--report", str(path)]) == 0
    printed = capsys.readouterr().out
    assert printed.index("numpy 0.1.0") < printed.index("reference 0.1.0")
    for name in ("numpy", "reference"):
        assert f"{name} 0.1.0: PASSED" in printed
        assert f"## {name} 0.1.0: PASSED" in path.read_text(encoding="utf-8")


def test_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    assert main(["numpy", *FAST, "--format", "json", "--report", str(path)]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert printed["passed"] is True
    assert [printed] == json.loads(path.read_text(encoding="utf-8"))
    (mean,) = (r for r in printed["results"] if r["name"] == "mean")
    assert {"what", "seen", "expected", "p_value", "samples", "fault"} <= set(mean["findings"][0])


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    printed = capsys.readouterr().out
    assert "keras-jax" in printed
    assert "backward-same-draw" in printed
