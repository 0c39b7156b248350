"""The same key gives the same coefficients in every framework, eager and compiled."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorflow as tf
import torch

import quantal
import quantal.jax
import quantal.tensorflow
import quantal.torch

SETTINGS = {
    "MNIST": {"rate": 0.2, "alpha": 0.2},
    "reviews": {"rate": 0.5, "alpha": 1.0},
    "dropout": {"rate": 0.3, "alpha": math.inf},
    "tiny alpha": {"rate": 0.1, "alpha": 1e-3},
    "tiny rate": {"rate": 1e-5, "alpha": 0.2},
    "only q": {"rate": 0.4, "alpha": 0.5, "vary": "q"},
    "only p": {"rate": 0.4, "alpha": 0.5, "vary": "p"},
    "unit mean": {"rate": 0.5, "alpha": 1.0, "unit_mean": True},
    "maps": {"rate": 0.5, "alpha": 1.0, "broadcast_dims": (2, 3)},
    "rows": {"rate": 0.5, "alpha": 1.0, "broadcast_dims": -1},
    "shared p": {"rate": 0.5, "alpha": 1.0, "p_broadcast_dims": (0,)},
    "shared p, only q": {"rate": 0.5, "alpha": 1.0, "p_broadcast_dims": (0,), "vary": "q"},
    "shared p, only p": {"rate": 0.5, "alpha": 1.0, "p_broadcast_dims": (0, 1), "vary": "p"},
    "both": {"rate": 0.5, "alpha": 5.0, "broadcast_dims": 1, "p_broadcast_dims": (0, 3)},
}
SHAPE = (6, 3, 5, 13)  # the last axis is no multiple of four


def with_torch(key, settings, compiled):
    def call(x):
        return quantal.torch.dilute(x, generator=key, **settings)

    if compiled:
        torch.compiler.reset()
        call = torch.compile(call, fullgraph=True)
    return call(torch.ones(SHAPE)).numpy()


def with_tensorflow(key, settings, compiled):
    call = functools.partial(quantal.tensorflow.dilute, rng=key, **settings)
    if compiled:
        call = tf.function(call, jit_compile=compiled == "XLA")
    return call(tf.ones(SHAPE)).numpy()


def with_jax(key, settings, compiled):
    call = functools.partial(quantal.jax.dilute, key=key, **settings)
    return np.asarray((jax.jit(call) if compiled else call)(jnp.ones(SHAPE)))


@pytest.mark.parametrize(
    ("framework", "compiled"),
    [
        (with_torch, False), (with_torch, True),
        (with_tensorflow, False), (with_tensorflow, "graph"), (with_tensorflow, "XLA"),
        (with_jax, False), (with_jax, True),
    ],
    ids=["torch", "torch.compile", "tensorflow", "tf.function", "XLA", "jax", "jax.jit"],
)  # fmt: skip
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_coefficients_equal_those_of_numpy(framework, compiled, settings):
    key = quantal.key(2**31 + 7).fold_in(5)
    expected = quantal.dilute(np.ones(SHAPE, np.float32), rng=key, **settings)
    drawn = framework(key, settings, compiled)
    assert drawn.dtype == np.float32
    np.testing.assert_array_equal(drawn, expected)


@pytest.mark.parametrize("seed", range(20))
def test_a_jax_key_is_the_portable_key(seed):
    drawn = quantal.jax.dilute(jnp.ones((7, 9)), 0.2, 0.2, key=jax.random.key(seed))
    expected = quantal.dilute(np.ones((7, 9), np.float32), 0.2, 0.2, rng=quantal.key(seed))
    np.testing.assert_array_equal(np.asarray(drawn), expected)


def test_dilute_takes_the_arrays_of_every_framework():
    key = quantal.key(1)
    expected = quantal.dilute(np.ones((5, 6), np.float32), 0.5, 1.0, rng=key)
    for array in (
        torch.ones(5, 6),
        tf.ones((5, 6)),
        tf.Variable(tf.ones((5, 6))),
        jnp.ones((5, 6)),
    ):
        drawn = quantal.dilute(array, 0.5, 1.0, rng=key)
        np.testing.assert_array_equal(np.asarray(drawn), expected)
        assert quantal.dilute(array, 0.5, 1.0, training=False) is array


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"rate": -0.1, "alpha": 1.0}, ValueError),
        ({"rate": math.nan, "alpha": 1.0}, ValueError),
        ({"rate": 0.5, "alpha": 0.0}, ValueError),
        ({"rate": 0.5}, TypeError),
        ({"rate": 0.5, "alpha": 1.0, "vary": "z"}, ValueError),
        ({"rate": 0.5, "alpha": 1.0, "broadcast_dims": 2}, ValueError),
        ({"rate": 0.5, "alpha": 1.0, "p_broadcast_dims": (0, 0)}, ValueError),
    ],
)
def test_errors_have_the_same_words_everywhere(keywords, error):
    messages = set()
    for array in (np.ones((2, 3)), torch.ones(2, 3), tf.ones((2, 3)), jnp.ones((2, 3))):
        with pytest.raises(error) as caught:
            quantal.dilute(array, rng=quantal.key(0), **keywords)
        messages.add(str(caught.value))
    assert len(messages) == 1
