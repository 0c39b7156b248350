"""Threads that share a model or a layer."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import torch
from torch import nn

import quantal
from quantal.torch import QSD, masks_on, predict_mc

THREADS = 4


@pytest.fixture(autouse=True)
def _switch_often():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(function):
    """Call a function of the thread's number in several threads, which start together."""
    start = Barrier(THREADS)

    def run(number):
        start.wait()
        return function(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


@pytest.mark.parametrize("training", [True, False])
def test_every_module_has_its_mode_back(training):
    model = nn.Sequential(nn.Linear(20, 20), nn.BatchNorm1d(20), QSD(0.5, 1.0), nn.Dropout(0.5))
    model.train(training)[1].eval()
    modes = [module.training for module in model.modules()]
    x = torch.ones(2, 20)

    def use(number):
        for _ in range(10):
            with masks_on(model, native=bool(number % 2)) as same:
                assert same is model
                assert model[2].training
            predict_mc(model, x, 2)

    for _ in range(5):
        in_threads(use)
        assert [module.training for module in model.modules()] == modes


def test_contexts_may_end_in_any_order():
    model = nn.Sequential(QSD(0.5, 1.0), nn.Dropout(0.5)).eval()
    first, second = masks_on(model, native=True), masks_on(model)
    first.__enter__()
    second.__enter__()
    assert [layer.training for layer in model] == [True, False]
    first.__exit__(None, None, None)
    assert [layer.training for layer in model] == [True, False]
    second.__exit__(None, None, None)
    assert [layer.training for layer in model] == [False, False]
    with masks_on(model):
        with masks_on(model, native=True):
            assert model[1].training
        assert not model[1].training
    assert not model[0].training


def test_no_mask_of_a_key_is_drawn_twice():
    layer, x, calls = QSD(0.5, 1.0, generator=quantal.key(0)), torch.ones(40), 50
    drawn = in_threads(lambda _: [tuple(layer(x).tolist()) for _ in range(calls)])
    assert layer.calls == THREADS * calls
    assert len({mask for masks in drawn for mask in masks}) == THREADS * calls
