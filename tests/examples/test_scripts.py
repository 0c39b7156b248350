"""The short scripts run wherever they are copied to; commands on the pages are understood."""

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from examples.__main__ import _parser

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NEEDS = {"torch": ("torch",), "keras": ("keras", "tensorflow"), "jax": ("jax", "flax", "optax")}


@pytest.mark.parametrize("framework", NEEDS)
def test_the_script_compares_dropout_and_qsd(framework, tmp_path):
    if absent := [name for name in NEEDS[framework] if find_spec(name) is None]:
        pytest.skip(f"not installed: {', '.join(absent)}")
    source = (EXAMPLES / f"digits_{framework}.py").read_text()
    shorter, times = re.subn(r"(SEEDS, EPOCHS = .*), \d+, \d+$", r"\1, 1, 4", source, flags=re.M)
    assert times == 1
    (tmp_path / "copied.py").write_text(shorter)
    done = subprocess.run(
        [sys.executable, "copied.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    costs = dict(re.findall(r"^(dropout|QSD) +test cost.*: (\d+\.\d+) nats$", done.stdout, re.M))
    assert costs.keys() == {"dropout", "QSD"}
    # Four epochs lead far away from ln 10, where an untrained network is.
    assert all(float(cost) < 1 for cost in costs.values()), costs


@pytest.mark.parametrize("framework", NEEDS)
def test_the_script_has_about_40_lines_of_code(framework):
    lines = (EXAMPLES / f"digits_{framework}.py").read_text().splitlines()
    assert sum(bool(line.strip()) for line in lines) <= 42


def test_no_module_beside_the_scripts_hides_one_of_python():
    # A script's own folder comes first where Python looks for modules.
    beside = {path.stem for path in EXAMPLES.iterdir()} - {"__main__", "__init__", "__pycache__"}
    assert beside & sys.stdlib_module_names == set()


def commands():
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for line in re.findall(r"-m examples ([^`\n]*)", page.read_text()):
            yield pytest.param(shlex.split(line, comments=True), id=f"{page.name}: {line}")


@pytest.mark.parametrize("command", [*commands()])
def test_a_command_of_a_page_is_understood(command):
    assert _parser().parse_args(command).do
