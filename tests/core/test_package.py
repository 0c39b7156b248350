"""The package as installed: what importing it loads, and the dispatch that adapters join."""

import subprocess
import sys
import types

import numpy as np
import pytest

import quantal
from quantal import _dispatch as dispatch
from quantal import _errors as checks

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
    [("torch", "torch"), ("keras", "keras"), ("tensorflow", "keras"), ("jax", "jax")],
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


def test_a_broken_framework_keeps_its_own_message(monkeypatch, tmp_path):
    (tmp_path / "broken_framework.py").write_text("import no_such_dependency")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        checks.require("broken_framework", "torch")


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
