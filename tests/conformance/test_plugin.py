"""The pytest plugin: one test a check, in three lines, and no burden on those who have none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from quantal.conformance import names

THREE_LINES = """
from port import adapter
def test_qsd(qsd_check):
    qsd_check(adapter)
"""
PORT = """
from quantal.conformance.adapters.numpy import native
class Port:
    name = "port"
    grad = staticmethod(native.grad)
    def apply(self, x, **settings):
        return {} * native.apply(x, **settings)
adapter = Port()
"""


def pytest_in(folder: Path, factor: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "port.py").write_text(PORT.format(factor))
    (folder / "test_port.py").write_text(THREE_LINES)
    command = [sys.executable, "-m", "pytest", "-p", "_quantal_pytest", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_one_test_for_each_check(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "1", "--collect-only", "-q")
    for name in names():
        assert f"test_port.py::test_qsd[{name}]" in done.stdout


def test_right_wrong_and_skipped(tmp_path: Path) -> None:
    chosen = "determinism or eval or bad-input"
    done = pytest_in(tmp_path, "1", "-q", "-rs", "-k", chosen)
    assert done.returncode == 0, done.stdout
    assert "3 passed, 1 skipped" in done.stdout
    assert "the adapter has no `calls`" in done.stdout
    done = pytest_in(tmp_path, "1.01", "-q", "-k", "eval", "--qsd-seed", "5")
    assert done.returncode == 1
    assert "port: Out of training the output is the input" in done.stdout
    assert "only='eval-identity', budget=1e-06, seed=5" in done.stdout


def test_others_do_not_pay_for_it() -> None:
    code = (
        "import sys, _quantal_pytest\n"
        "print([m for m in ('numpy', 'scipy', 'quantal', 'torch', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
