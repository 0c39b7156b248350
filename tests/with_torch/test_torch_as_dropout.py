"""What PyTorch's own tests ask of its dropout, asked of QSD with alpha=inf."""

import math

import pytest
import torch
from scipy import stats
from torch import nn

from quantal.torch import QSD, QSD1d, QSD2d, QSD3d, dilute

pytestmark = pytest.mark.usefixtures("both_ways_back")

PAIRS = [(QSD, nn.Dropout), (QSD1d, nn.Dropout1d), (QSD2d, nn.Dropout2d), (QSD3d, nn.Dropout3d)]
SHAPES = {QSD: (1000,), QSD1d: (50, 20, 7), QSD2d: (50, 20, 3, 5), QSD3d: (50, 20, 2, 3, 2)}
ALARM = 1e-6


def maps(y, layer):
    """One value per coefficient."""
    return y.flatten(2)[..., 0] if layer is not QSD else y


@pytest.mark.parametrize(("layer", "native"), PAIRS)
@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("inplace", [False, True])
def test_zero_fraction_and_scale(layer, native, p, inplace):
    torch.manual_seed(0)
    for kind, extra in ((layer, {"alpha": math.inf}), (native, {})):
        x = torch.full(SHAPES[layer], 1 - p)
        y = kind(p, inplace=inplace, **extra)(x)
        assert (y is x) == inplace
        assert y.shape == SHAPES[layer]
        dropped = maps(y, layer) == 0
        test = stats.binomtest(int(dropped.sum()), dropped.numel(), p)
        assert test.pvalue > ALARM
        torch.testing.assert_close(y[y != 0], torch.ones_like(y[y != 0]))
        if layer is not QSD:  # whole maps, and each its own
            assert (y.flatten(2) == y.flatten(2)[..., :1]).all()
            assert (dropped != dropped[:1]).any()
            assert (dropped != dropped[:, :1]).any()


@pytest.mark.parametrize(("layer", "native"), PAIRS)
def test_limits(layer, native):
    x = torch.randn(SHAPES[layer], requires_grad=True)
    assert layer(0.0, math.inf)(x) is x
    assert layer(0.5, math.inf).eval()(x) is x
    y = layer(1.0, math.inf)(x)
    y.sum().backward()
    assert not y.any()
    assert not x.grad.any()
    assert torch.equal(y, native(1.0)(x))


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5, 0, 2), ()])
def test_empty_and_scalar(shape):
    for alpha in (1.0, math.inf):
        assert QSD(0.5, alpha)(torch.ones(shape)).shape == shape
    x = torch.ones(0, 3, 4, 4, requires_grad=True)
    QSD2d(0.5, math.inf)(x).sum().backward()
    assert x.grad.shape == x.shape


def test_non_contiguous_input():
    x = torch.randn(40, 30, requires_grad=True)
    for view in (x.t(), x[::2, ::3], x[:, :1].expand(40, 50)):
        x.grad = None
        y = dilute(view, 0.5, math.inf)
        kept = y != 0
        torch.testing.assert_close(y[kept], 2 * view[kept])
        y.sum().backward()
        assert x.grad.sum() == 2 * kept.sum()


@pytest.mark.parametrize(
    ("layer", "shape", "memory_format"),
    [
        (QSD2d, (4, 3, 5, 6), torch.channels_last),
        (QSD, (4, 3, 5, 6), torch.channels_last),
        (QSD3d, (4, 3, 2, 5, 6), torch.channels_last_3d),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_memory_format_is_preserved(layer, shape, memory_format, dtype):
    x = torch.ones(shape, dtype=dtype).contiguous(memory_format=memory_format).requires_grad_()
    y = layer(0.5, 1.0)(x)
    assert y.is_contiguous(memory_format=memory_format)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert gradient.is_contiguous(memory_format=memory_format)
    assert torch.equal(gradient, y)


def test_masks_differ_from_call_to_call_and_follow_the_seed():
    layer, x = QSD(0.5, math.inf), torch.ones(200)
    torch.manual_seed(7)
    first, second = layer(x), layer(x)
    torch.manual_seed(7)
    assert torch.equal(layer(x), first)
    assert not torch.equal(first, second)  # equal with probability 2⁻²⁰⁰


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan")])
def test_probabilities_out_of_range(wrong):
    for layer in (QSD, QSD2d):
        with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
            layer(wrong, 1.0)
    layer = QSD(0.5, 1.0)
    with pytest.raises(ValueError, match=r"rate: expected a number in \[0, 1\]"):
        layer.p = wrong
    assert layer.p == 0.5


@pytest.mark.parametrize(("layer", "most"), [(QSD1d, 3), (QSD2d, 4), (QSD3d, 5)])
def test_wrong_rank_is_an_error(layer, most):
    for training in (True, False):
        for ndim in range(7):
            x = torch.ones((2,) * ndim)
            if ndim in (most - 1, most):
                y = layer(0.5, 1.0).train(training)(x)
                flat = y.flatten(ndim - most + 2)
                assert (flat == flat[..., :1]).all()
            else:
                with pytest.raises(ValueError, match=r"x: expected a tensor of shape \(C, "):
                    layer(0.5, 1.0).train(training)(x)
