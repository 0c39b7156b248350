"""Devices that are neither a CPU nor one of NVIDIA's, AMD's or Intel's, by stand-ins on a CPU."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import quantal
from quantal.keys import CELLS
from quantal.torch import _product, dilute
from quantal.torch._private_api import Code
from quantal.torch._random_bits import TorchStream

ALARM = 1e-6  # probability of a false alarm, per test
# Apple's, and some of which nothing is known.
DEVICES = [torch.device(name) for name in ("mps", "xla", "privateuseone:1")]


@pytest.fixture(params=DEVICES, ids=str)
def device(request, monkeypatch):
    """Random integers as on Apple's devices: drawn as int32 and then cast, whatever is asked for."""
    randint = torch.randint

    def drawn(low, high, shape, *, dtype, device, generator=None):
        assert device == request.param
        bounds = torch.iinfo(torch.int32)
        low, high = max(low, bounds.min), min(high, bounds.max)
        return randint(low, high, shape, dtype=torch.int32, generator=generator).to(dtype)

    monkeypatch.setattr(torch, "randint", drawn)
    return request.param


@pytest.mark.parametrize("code", [Code.EAGER, Code.TRANSFORMED, Code.COMPILED])
@pytest.mark.parametrize("name", ["indices", "shared_indices"])
def test_cells_are_uniform_where_words_of_64_bits_are_not_random(name, code, device):
    torch.manual_seed(0)
    count, bins = 2**18 + 3, 64
    cells = getattr(TorchStream(None, device, code), name)((count,))
    assert cells.shape == (count,)
    assert cells.dtype == torch.int16
    # Each of four neighbours by itself: they would share one word.
    for place in range(4):
        binned = (cells[place::4].numpy().astype(int) + CELLS // 2) * bins // CELLS
        counts = np.bincount(binned, minlength=bins)
        assert stats.chisquare(counts).pvalue > ALARM / 4


def test_levels_are_uniform_there(device):
    torch.manual_seed(0)
    levels = TorchStream(None, device, Code.EAGER).levels((2**16,)).numpy()
    assert stats.kstest(levels / 2**30, "uniform").pvalue > ALARM


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"broadcast_dims": 0}, {"p_broadcast_dims": 0}], ids=str)
def test_fewer_passes_give_the_same(monkeypatch, dtype, options):
    """What casts within other operations, as all devices but CPUs do it."""
    x = torch.randn(33, 50).to(dtype).requires_grad_()
    upstream = torch.randn(33, 50).to(dtype)

    def results():
        y = dilute(x, 0.3, 0.2, generator=quantal.key(3), **options)
        return y.detach(), *torch.autograd.grad(y, x, upstream)

    expected = results()
    monkeypatch.setattr(_product, "_CAST_APART", set())
    got = results()
    assert all(torch.equal(*pair) for pair in zip(got, expected, strict=True))
    assert 0 < (got[0] == 0).sum() < math.prod(got[0].shape)
