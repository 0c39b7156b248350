"""What happens where a name is gone that JAX, Flax or Haiku never promised to keep."""

import re
import sys
import types
from pathlib import Path

import haiku as hk
import jax
import numpy as np
import pytest
from flax import nnx
from jax import numpy as jnp

import quantal
import quantal.jax.haiku
import quantal.jax.nnx
from quantal.jax import _private_api, _random_numbers

PRIVATE = re.compile(
    r"jax\._src|jax\.extend|flax\.nnx\.nn|haiku\._src|_call_wrapped_method|source_info"
)


def test_private_names_stand_in_one_file():
    package = Path(quantal.jax.__file__).parent
    files = {p.name for p in package.rglob("*.py") if PRIVATE.search(p.read_text())}
    assert files == {"_private_api.py"}


def test_without_the_cipher_of_jax_the_numbers_are_the_same(monkeypatch):
    x = np.ones((3, 41), np.float32)  # a shape of its own, so that it is traced here
    monkeypatch.delattr("jax.extend.random.threefry2x32_p")
    program = jax.make_jaxpr(lambda x: quantal.jax.dilute(x, 0.3, 0.7, key=quantal.key(5)))(x)
    assert "threefry2x32[" not in str(program).replace("random_bits", "")
    got = quantal.jax.dilute(jnp.asarray(x), 0.3, 0.7, key=quantal.key(5))
    np.testing.assert_array_equal(got, quantal.dilute(x, 0.3, 0.7, rng=quantal.key(5)))
    jax.clear_caches()


def test_without_attention_weights_attention_is_named(monkeypatch):
    attention = nnx.MultiHeadAttention(2, 8, dropout_rate=0.5, decode=False, rngs=nnx.Rngs(0))
    monkeypatch.delattr("flax.nnx.nn.attention.dot_product_attention_weights")
    with pytest.raises(ValueError, match="this version of Flax hides its attention weights"):
        quantal.jax.nnx.convert(attention, 1.0)


def test_without_source_lines_native_masks_are_still_counted(monkeypatch):
    assert _private_api.frames_of(object()) == []
    monkeypatch.setattr(_random_numbers, "frames_of", lambda equation: [])
    model = nnx.Sequential(lambda x: x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape))
    found = quantal.jax.nnx.sites(model, example=jnp.ones(3))
    assert [(site.name, site.kind) for site in found] == [("(unknown)", "bernoulli")]
    assert found[0].unreached


@pytest.mark.parametrize("name", ["BERNOULLI", "UNIFORM", "RADEMACHER"])
def test_by_another_name_a_sampler_still_makes_masks(name, monkeypatch):
    monkeypatch.setattr(_random_numbers, name, "_by_another_name")

    def layer(x):
        key = jax.random.key(0)
        masks = {
            "BERNOULLI": lambda: jax.random.bernoulli(key, 0.5, x.shape),
            "UNIFORM": lambda: jax.random.uniform(key, x.shape) < 0.5,
            "RADEMACHER": lambda: jax.random.rademacher(key, x.shape) > 0,
        }
        return x * masks[name]()

    found = quantal.jax.nnx.sites(nnx.Sequential(layer), example=jnp.ones((3, 4)))
    assert len(found) == 1
    assert found[0].unreached


def test_without_its_implementation_hk_dropout_itself_is_replaced(monkeypatch):
    def model(x):
        return hk.dropout(hk.next_rng_key(), 0.5, x)

    transformed, x, before = hk.transform(model), jnp.ones((20, 20)), hk.dropout
    monkeypatch.setitem(sys.modules, "haiku._src.basic", types.ModuleType("haiku._src.basic"))
    got = quantal.jax.haiku.convert(transformed, 1.0).apply({}, jax.random.PRNGKey(0), x)
    assert len(np.unique(got)) > 2
    assert hk.dropout is before
