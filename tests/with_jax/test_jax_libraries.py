"""`dilute` in other libraries, and imports that bring in nothing they do not need."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from jax import numpy as jnp

import quantal.jax

FRAMEWORKS = ("flax", "equinox", "torch", "tensorflow", "keras", "haiku")


def test_in_haiku():
    hk = pytest.importorskip("haiku")

    def model(x):
        return quantal.jax.dilute(x, 0.3, 0.7, key=hk.next_rng_key())

    transformed, x = hk.transform(model), jnp.ones((4, 8))
    got = jax.jit(transformed.apply)({}, jax.random.PRNGKey(0), x)
    key = hk.transform(hk.next_rng_key).apply({}, jax.random.PRNGKey(0))
    np.testing.assert_array_equal(got, quantal.jax.dilute(x, 0.3, 0.7, key=key))


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("modules", "brings"),
    [
        (("quantal.jax", "quantal.jax.nnx", "quantal.jax.linen"), ("", "flax", "flax")),
        (("quantal.jax", "quantal.jax.equinox"), ("", "equinox")),
    ],
)
def test_what_an_import_brings_in(modules, brings):
    code = f"""
import sys, importlib
for module in {modules}:
    importlib.import_module(module)
    print(*[name for name in {FRAMEWORKS} if name in sys.modules])
"""
    assert tuple(run(code)) == brings


def test_a_missing_package_is_named_with_the_line_to_type():
    cases = {
        "quantal.jax": "jax",
        "quantal.jax.nnx": "flax",
        "quantal.jax.linen": "flax",
        "quantal.jax.equinox": "equinox",
    }
    code = f"""
import sys, importlib
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == package:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Absent())
for module, package in {cases}.items():
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(type(error).__name__, error, sep=": ")
"""
    assert run(code) == [
        f"ImportError: {package} is not installed. Type: pip install 'quantal[{package}]'"
        for package in cases.values()
    ]
