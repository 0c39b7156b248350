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


@pytest.mark.parametrize(
    ("module", "brings"),
    [
        ("quantal.jax", ()),
        ("quantal.jax.nnx", ("flax",)),
        ("quantal.jax.linen", ("flax",)),
        ("quantal.jax.equinox", ("equinox",)),
    ],
)
def test_what_an_import_brings_in(module, brings):
    code = f"import sys, {module}; print(*[m for m in {FRAMEWORKS} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.split()) == brings


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("quantal.jax", "jax", "jax"),
        ("quantal.jax.nnx", "flax", "flax"),
        ("quantal.jax.linen", "flax", "flax"),
        ("quantal.jax.equinox", "equinox", "equinox"),
    ],
)
def test_a_missing_package_is_named_with_the_line_to_type(module, package, extra):
    code = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Absent())
import {module}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wanted = f"ImportError: {package} is not installed. Type: pip install 'quantal[{extra}]'"
    assert wanted in done.stderr
