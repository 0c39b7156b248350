"""Threads that share a model: contexts that end in another order than they began."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import equinox as eqx
import haiku as hk
import jax
import pytest
from flax import linen as nn
from flax import nnx
from jax import numpy as jnp

import quantal.jax.equinox
import quantal.jax.haiku
import quantal.jax.linen
import quantal.jax.nnx

X, KEY = jnp.ones((4, 4)), jax.random.key(0)


def draws(y):
    return bool(jnp.any(y != X))


class InAnotherThread:
    """A thread that does what it is told to, and may have entered a context."""

    def __init__(self, context):
        self.pool, self.stack = ThreadPoolExecutor(1), ExitStack()
        self.entered = self.do(self.stack.enter_context, context)

    def do(self, function, *args):
        return self.pool.submit(function, *args).result(60)

    def leave(self):
        self.do(self.stack.close)
        self.pool.shutdown()


@pytest.mark.parametrize("first", [0, 1])
def test_in_nnx_the_masks_are_on_until_the_last_has_left(first):
    model = nnx.Sequential(quantal.jax.nnx.QSD(0.5, 1.0, rngs=nnx.Rngs(0)))
    model.eval()
    threads = [InAnotherThread(quantal.jax.nnx.masks_on(model)) for _ in range(2)]
    assert draws(model(X))
    threads.pop(first).leave()
    assert draws(model(X))
    threads.pop().leave()
    assert model(X) is X
    assert model.layers[0].deterministic is True


def test_in_linen_the_masks_are_those_of_a_thread():
    model = quantal.jax.linen.QSD(0.5, 1.0, deterministic=True)

    def run():
        return draws(model.apply({}, X, rngs={"dropout": KEY}))

    one, other = (InAnotherThread(quantal.jax.linen.masks_on(model)) for _ in range(2))
    assert not run()
    assert one.do(run)
    one.leave()
    assert other.do(run)
    other.leave()
    assert not run()


def test_in_equinox_the_model_that_draws_is_another_one():
    model = eqx.nn.inference_mode(quantal.jax.equinox.QSD(0.5, 1.0))
    one, other = (InAnotherThread(quantal.jax.equinox.masks_on(model)) for _ in range(2))
    one.leave()
    assert draws(other.entered(X, key=KEY))
    assert model(X) is X
    other.leave()


def test_in_haiku_dropout_is_its_own_again_when_the_last_has_left():
    """And meanwhile it is, in all threads but those that run a converted function."""

    def function(x):
        meanwhile.pop()()
        return hk.dropout(hk.next_rng_key(), 0.5, x)

    def beside():
        """Run a converted function in another thread, in the middle of this one, and a plain one."""
        thread = ThreadPoolExecutor(1)
        assert jnp.array_equal(thread.submit(converted.apply, {}, KEY, X).result(60), want)
        assert jnp.array_equal(thread.submit(hk.dropout, KEY, 0.5, X).result(60), native)

    meanwhile = [lambda: None, lambda: None]
    plain, native = hk.transform(function), hk.dropout(KEY, 0.5, X)
    converted = quantal.jax.haiku.convert(plain, 1.0)
    want = converted.apply({}, KEY, X)
    assert jnp.any(want != plain.apply({}, KEY, X))
    meanwhile = [lambda: None, beside, beside]  # each in the one after it
    assert jnp.array_equal(converted.apply({}, KEY, X), want)
    assert meanwhile == []
    assert jnp.array_equal(hk.dropout(KEY, 0.5, X), native)


def test_linen_modules_run_in_threads_of_their_own():
    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dropout(0.5, deterministic=True)(x)

    one = InAnotherThread(quantal.jax.linen.masks_on(Net(), native=True))
    assert one.do(lambda: draws(Net().apply({}, X, rngs={"dropout": KEY})))
    assert not draws(Net().apply({}, X, rngs={"dropout": KEY}))
    one.leave()
