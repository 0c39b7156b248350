"""The package as installed: what importing it loads, and the dispatch that adapters join."""

import re
import subprocess
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest

import quantal
from quantal import _dispatch as dispatch
from quantal._errors import is_installed, require

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("torch", "tensorflow", "keras", "jax", "flax", "equinox", "matplotlib", "pytest")


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_quantal_loads_no_framework():
    code = f"""
import sys, quantal, quantal._cli
quantal.dilute(__import__("numpy").ones(3), 0.5, 1.0)
print([name for name in {FRAMEWORKS!r} if name in sys.modules])
"""
    assert run(code) == "[]"


@pytest.mark.parametrize(
    ("package", "extra"),
    [("torch", "torch"), ("tensorflow", "tensorflow"), ("jax", "jax")],
)
def test_a_missing_framework_is_named_with_the_line_to_type(package, extra):
    # A None in sys.modules makes a package unimportable, installed or not.
    code = f"""
import sys
sys.modules[{package!r}] = None
try:
    import quantal.{package}
except ImportError as error:
    print(error)
"""
    assert run(code) == f"{package} is not installed. Type: pip install 'quantal[{extra}]'"


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("missing", ["keras", "backend"])
def test_keras_without_a_backend_is_of_no_use(backend, missing, tmp_path):
    gone = "keras" if missing == "keras" else backend
    if missing == "backend" and not is_installed("keras"):
        pytest.skip("Keras itself is not installed here")
    code = f"""
import os, sys
os.environ |= {{"KERAS_BACKEND": {backend!r}, "KERAS_HOME": {str(tmp_path)!r}}}
sys.modules[{gone!r}] = None
try:
    import quantal.keras
except ImportError as error:
    print(error)
"""
    line = f"{gone} is not installed. Type: pip install 'quantal[keras-{backend}]'"
    assert run(code).splitlines()[-1] == line


def test_every_remedy_is_an_extra_that_exists():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    source = "\n".join(file.read_text() for file in (ROOT / "src/quantal").rglob("*.py"))
    named = set(re.findall(r"quantal\[([\w,-]+)\]", source))
    named |= set(re.findall(r'require\("\w+", "([\w-]+)"\)', source))
    assert {extra for group in named for extra in group.split(",")} <= extras.keys()
    assert {"torch", "jax", "flax", "equinox", "tensorflow", "plot"} <= named
    inside = "\n".join(need for needs in extras.values() for need in needs)
    assert (
        set(re.findall(r"[\w-]+", " ".join(re.findall(r"quantal\[(.*?)\]", inside))))
        <= extras.keys()
    )


def test_submodules_load_when_they_are_first_used():
    code = f"""
import sys, quantal
print(quantal.sites.Site("a", "Dropout", 0.5).rate, quantal.conformance.run.__name__)
print(quantal.table.table(quantal.Dilution(0.5, 1.0)).values.shape)
print([name for name in {FRAMEWORKS!r} if name in sys.modules])
for name in ("torch", "jax", "keras", "tensorflow"):
    sys.modules[name] = None
print(*(name in dir(quantal) for name in ("Dilution", "sites", "torch", "jax")))
try:
    quantal.torch
except ImportError as error:
    print(error)
try:
    quantal.pytorch
except AttributeError as error:
    print(error)
"""
    assert run(code).splitlines() == [
        "0.5 run",
        "(2, 65536)",
        "[]",
        "True True False False",
        "torch is not installed. Type: pip install 'quantal[torch]'",
        "module 'quantal' has no attribute 'pytorch'",
    ]


def test_frameworks_modules_are_attributes():
    needs = {"jax": "jax", "jax.equinox": "equinox", "jax.linen": "flax", "jax.nnx": "flax"}
    needs |= {name: name for name in ("torch", "tensorflow", "keras")}
    there = [name for name, framework in needs.items() if is_installed(framework)]
    if not there:
        pytest.skip("no framework is installed here")
    # In one process, since some of them take seconds to import.
    code = f"import quantal\nfor name in {there!r}: print(eval(f'quantal.{{name}}').__name__)"
    assert run(code).splitlines() == [f"quantal.{name}" for name in there]


def test_a_broken_framework_keeps_its_own_message(monkeypatch, tmp_path):
    (tmp_path / "broken_framework.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        require("broken_framework", "torch")


def test_a_framework_can_join_the_dispatch(monkeypatch):
    module = types.ModuleType("toy_adapter")
    module.dilute = lambda x, rate, alpha, **keywords: (x, rate, alpha, keywords)
    monkeypatch.setitem(sys.modules, "toy_adapter", module)
    monkeypatch.setattr(dispatch, "_BACKENDS", dict(dispatch._BACKENDS))
    array = type("Array", (), {"__module__": "toy.arrays"})()
    with pytest.raises(TypeError, match="x: expected an array"):
        quantal.dilute(array, 0.5, 1.0)
    dispatch.register(
        "toy", arrays="toy.Array", module="toy_adapter", install="pip install toy", source="dice"
    )
    assert quantal.dilute(array, 0.5, 1.0, rng=6, vary="q") == (
        array, 0.5, 1.0, {"dice": 6, "training": True, "vary": "q"},
    )  # fmt: skip
    with pytest.raises(TypeError, match=r"toy.Array \(pip install toy\)"):
        quantal.dilute("a string", 0.5, 1.0)


def test_subclasses_of_arrays_are_dispatched_too():
    class Tagged(np.ndarray):
        pass

    x = np.ones((3, 3)).view(Tagged)
    assert isinstance(quantal.dilute(x, 0.5, 1.0), Tagged)


def test_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert version("quantal") == quantal.__version__
