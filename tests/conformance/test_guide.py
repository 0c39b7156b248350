"""The guide: its toy framework is written out, judged, and its report is the one in the guide.

After a change, ``python tests/conformance/test_guide.py`` writes the report into the guide.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "conformance.md"
LAST = re.compile(r"```text\n(?P<report>.*?)\n```\n\Z", re.DOTALL)


def write_out(folder: Path) -> None:
    """Write the files of the guide: its blocks begin with the name of the file they belong to."""
    text = GUIDE.read_text(encoding="utf-8")
    files: dict[str, str] = {}
    for name, block in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        files[name] = files.get(name, "") + block
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")


def judge(folder: Path) -> subprocess.CompletedProcess[str]:
    write_out(folder)
    command = [sys.executable, "-m", "quantal.conformance", "toy:adapter"]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False
    )


def test_the_toy_framework_passes_with_the_report_of_the_guide(tmp_path: Path) -> None:
    done = judge(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = LAST.search(GUIDE.read_text(encoding="utf-8"))
    assert found
    assert found["report"] == done.stdout.strip("\n")


def test_the_test_of_the_guide_is_one_for_each_check(tmp_path: Path) -> None:
    write_out(tmp_path)
    command = [sys.executable, "-m", "pytest", "-p", "_quantal_pytest", "-q", "-k", "identity"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        printed = judge(Path(name)).stdout.strip("\n")
    page = GUIDE.read_text(encoding="utf-8")
    written = LAST.sub(lambda _: f"```text\n{printed}\n```\n", page)
    GUIDE.write_text(written, encoding="utf-8")
