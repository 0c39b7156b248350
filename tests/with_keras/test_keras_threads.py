"""Threads that share a model on one backend; each step waits for the one before it."""

import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import keras
import numpy as np
import pytest
from keras import layers, ops
from zoo import MODELS, example

from quantal.keras import QSD, convert, masks_on, predict_mc
from quantal.keras._walk import walk

X = np.ones((8, 4), np.float32)


def numpy(x):
    return ops.convert_to_numpy(x)


def draws(layer):
    return bool(np.any(numpy(layer(X)) != 1))


class InAnotherThread:
    """A context that another thread enters and leaves, when it is told to."""

    def __init__(self, *args, **kwargs):
        self.pool, self.stack = ThreadPoolExecutor(1), ExitStack()
        self.pool.submit(self.stack.enter_context, masks_on(*args, **kwargs)).result()

    def leave(self):
        self.pool.submit(self.stack.close).result()
        self.pool.shutdown()


@pytest.mark.parametrize("name", ["functional", "lstm, recurrent"])
@pytest.mark.parametrize("last", [0, 2])
def test_threads_leave_in_any_order(name, last):
    model = convert(MODELS[name](), 0.2)
    x = example(model)
    want = numpy(model(x))
    attributes = [dict(vars(node.layer)) for node in walk(model)]
    threads = [InAnotherThread(model) for _ in range(3)]
    for each in (*(n for n in range(3) if n != last), last):
        assert np.any(numpy(model(x)) != want)
        threads[each].leave()
    np.testing.assert_array_equal(numpy(model(x)), want)
    for node, before in zip(walk(model), attributes, strict=True):
        assert {*vars(node.layer)} == {*before}
        assert vars(node.layer).get("call") is before.get("call")


def test_of_two_the_last_counts_where_they_differ():
    qsd, native = QSD(0.5, 0.2), layers.Dropout(0.5)
    model = keras.Sequential([keras.Input((4,)), qsd, native])
    both = InAnotherThread(model, native=True)
    one = InAnotherThread(qsd)
    assert draws(qsd)
    assert draws(native)
    both.leave()
    assert draws(qsd)
    assert not draws(native)
    one.leave()
    assert not draws(qsd)


def test_a_layer_has_its_own_method_back():
    layer = QSD(0.5, 0.2)
    call = layer.call
    vars(layer)["call"] = own = lambda inputs, training=False: 2 * call(inputs, training=training)
    first, second = InAnotherThread(layer), InAnotherThread(layer)
    assert set(np.unique(numpy(layer(X)))) != {2}
    first.leave()
    assert set(np.unique(numpy(layer(X)))) != {2}
    second.leave()
    assert vars(layer)["call"] is own
    assert set(np.unique(numpy(layer(X)))) == {2}


class Waits(keras.callbacks.Callback):
    """Stops a pass after its first batch, until it is told to go on."""

    def __init__(self):
        super().__init__()
        self.there, self.go_on = Event(), Event()

    def on_predict_batch_end(self, batch, logs=None):
        if batch == 0:
            self.there.set()
            assert self.go_on.wait(60)


@pytest.mark.parametrize("eager", [True, False])
def test_who_predicts_plainly_sees_the_masks_as_long_as_they_are_on(eager):
    """And is not interrupted, though what is compiled changes under its hands."""
    model = keras.Sequential([keras.Input((4,)), QSD(0.5, 0.2)])
    model.compile(run_eagerly=eager)
    waits = Waits()
    with ThreadPoolExecutor(1) as pool:
        plain = pool.submit(model.predict, X, batch_size=4, verbose=0, callbacks=[waits])
        assert waits.there.wait(60)
        with masks_on(model):
            waits.go_on.set()
            first, second = np.split(plain.result(60), 2)
    np.testing.assert_array_equal(first, 1)
    assert np.any(second != 1)
    np.testing.assert_array_equal(model.predict(X, verbose=0), 1)


def test_predictions_of_several_threads_are_drawn_one_after_another():
    model = keras.Sequential([keras.Input((4,)), QSD(0.5, 1.0, seed=1)])
    alone = QSD(0.5, 1.0, seed=1)
    want = {numpy(alone(ops.ones(X.shape), training=True)).tobytes() for _ in range(12)}
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(predict_mc, model, X, 3, samples=True) for _ in range(4)]
            drawn = [mask.tobytes() for each in asked for mask in each.result(60).samples]
    finally:
        sys.setswitchinterval(before)
    assert len(drawn) == len(want)
    assert {*drawn} == want  # none twice, none left out
    np.testing.assert_array_equal(model.predict(X, verbose=0), 1)


def test_the_output_may_predict_too():
    model = keras.Sequential([keras.Input((4,)), QSD(0.5, 1.0, seed=1)])
    mean, _ = predict_mc(model, X, 2, output=lambda y: predict_mc(model, y, 2).mean)
    assert mean.shape == X.shape
