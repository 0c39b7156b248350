"""`quantal.jax.linen.QSD` in the place of `nn.Dropout`."""

import math

import jax
import numpy as np
import pytest
from flax import errors
from flax import linen as nn
from jax import numpy as jnp

import quantal
from quantal.jax.linen import QSD

X = jnp.ones((20, 20))
KEYS = jax.random.split(jax.random.key(0), 3)


def test_the_stream_decides_and_only_while_it_is_on():
    layer = QSD(0.5, alpha=math.inf)
    first, second = (layer.apply({}, X, False, rngs={"dropout": key}) for key in KEYS[:2])
    assert bool(jnp.any(first != second))
    for key in KEYS[:2]:
        assert layer.apply({}, X, True, rngs={"dropout": key}) is X
    assert layer.init(KEYS[0], X, True) == {}


def test_deterministic_is_given_once():
    with pytest.raises(ValueError, match="deterministic"):
        QSD(0.5, 1.0).apply({}, X)
    with pytest.raises(ValueError, match="deterministic"):
        QSD(0.5, 1.0, deterministic=True).apply({}, X, True)
    assert QSD(0.5, 1.0, deterministic=True).apply({}, X) is X


def test_the_collection_is_used_and_a_missing_one_is_an_error():
    layer = QSD(0.5, 1.0, rng_collection="other", deterministic=False)
    desired = QSD(0.5, 1.0, deterministic=False).apply({}, X, rngs={"dropout": KEYS[0]})
    np.testing.assert_array_equal(layer.apply({}, X, rngs={"other": KEYS[0]}), desired)
    with pytest.raises(errors.InvalidRngError, match="other"):
        layer.apply({}, X, rngs={"dropout": KEYS[0]})
    assert QSD(0.0, 1.0, deterministic=False).apply({}, X) is X


def test_the_key_of_the_call_beats_the_stream():
    layer = QSD(0.3, 0.7, deterministic=False)
    desired = quantal.jax.dilute(X, 0.3, 0.7, key=quantal.key(1))
    for rng in (jax.random.key(1), quantal.key(1)):
        got = layer.apply({}, X, rng=rng, rngs={"dropout": KEYS[0]})
        np.testing.assert_array_equal(got, desired)


class Block(nn.Module):
    layer: type = QSD

    @nn.compact
    def __call__(self, x, _=None):
        x = nn.Dense(8)(x)
        kwargs = {"alpha": 0.7} if self.layer is QSD else {}
        return self.layer(0.3, deterministic=False, **kwargs)(x), None


def test_variables_are_those_of_dropout():
    rngs = {"params": KEYS[0], "dropout": KEYS[1]}
    shapes = [Block(layer).init(rngs, jnp.ones((2, 8))) for layer in (QSD, nn.Dropout)]
    assert jax.tree.structure(shapes[0]) == jax.tree.structure(shapes[1])


@pytest.mark.parametrize("lifted", ["scan", "vmap", "remat", "jit"])
def test_lifted_transformations(lifted):
    axes = {"variable_axes": {"params": 0}, "split_rngs": {"params": True, "dropout": True}}
    model = {
        "scan": lambda: nn.scan(Block, length=3, **axes)(),
        "vmap": lambda: nn.vmap(Block, in_axes=0, out_axes=0, axis_size=4, **axes)(),
        "remat": lambda: nn.remat(Block)(),
        "jit": lambda: nn.jit(Block)(),
    }[lifted]()
    x, rngs = jnp.ones((4, 8)), {"params": KEYS[0], "dropout": KEYS[1]}
    variables = model.init(rngs, x)

    def loss(variables, x):
        return jnp.sum(jnp.sin(model.apply(variables, x, rngs={"dropout": KEYS[2]})[0]))

    plain, compiled = jax.grad(loss)(variables, x), jax.jit(jax.grad(loss))(variables, x)
    for a, b in zip(jax.tree.leaves(plain), jax.tree.leaves(compiled), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_split_streams_differ():
    mapped = nn.vmap(
        QSD, in_axes=0, out_axes=0, variable_axes={}, split_rngs={"dropout": True}, axis_size=4
    )
    y = mapped(0.5, math.inf, deterministic=False).apply(
        {}, jnp.ones((4, 64)), rngs={"dropout": KEYS[0]}
    )
    assert len({row.tobytes() for row in np.asarray(y)}) == 4


def test_remat_gives_the_same_gradient():
    x = jnp.asarray(np.random.default_rng(0).standard_normal((4, 8)), jnp.float32)
    gradients = []
    for block in (QSD, nn.remat(QSD)):
        layer = block(0.3, 0.7, deterministic=False)
        f = lambda x: jnp.sum(jnp.sin(layer.apply({}, x, rngs={"dropout": KEYS[0]})))  # noqa: B023, E731
        gradients.append(jax.grad(f)(x))
    np.testing.assert_array_equal(gradients[0] == 0, gradients[1] == 0)
    np.testing.assert_allclose(*gradients, rtol=1e-6)
