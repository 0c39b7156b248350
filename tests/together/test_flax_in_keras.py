"""A Linen module in a Keras layer, on JAX: its dropout is named, and QSD in it is known."""

import subprocess
import sys

CODE = """
import keras
from flax import linen as nn

import quantal.jax.linen
from quantal.keras import sites


class Module(nn.Module):
    @nn.compact
    def __call__(self, x, training):
        return nn.Dropout(0.25)(x, deterministic=not training)


for module in (Module(), quantal.jax.linen.convert(Module(), 2.0)):
    (site,) = sites(keras.Sequential([keras.Input((4,)), keras.layers.FlaxLayer(module)]))
    print(site.kind, site.alpha, site.unreached.partition(":")[0])
"""


def test_named(tmp_path, monkeypatch):
    script = tmp_path / "script.py"  # a file, since what has no source is not read
    script.write_text(CODE)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert ran.stdout.splitlines() == ["Module None in a module of Linen", "QSD 2.0 "], ran.stderr
