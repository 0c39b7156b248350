"""The coefficients themselves: the same law, bits, gradients and precision as the NumPy model."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats

import quantal
import quantal.numpy
from quantal import Dilution
from quantal._granularity import coefficient_shapes
from quantal.keys import LEVELS
from quantal.table import table
from quantal.torch import QSD, _apply, dilute
from quantal.torch._private_api import Code
from quantal.torch._random_bits import KeyOnCPU, KeyOnDevice, source

pytestmark = pytest.mark.usefixtures("both_ways_back")

FEW = _apply._FEW

KEY = quantal.key(2**63 + 12345)
HALF = [torch.float16, torch.bfloat16]
DTYPES = [*HALF, torch.float32, torch.float64]
ALARM = 1e-6  # probability of a false alarm, per test
LAWS = [
    Dilution(0.3, 0.2),
    Dilution(0.5, math.inf),
    Dilution(0.4, 3.0, vary="q", unit_mean=True),
    Dilution(0.4, 3.0, vary="p"),
]
GRANULARITY = [((), ()), ((0,), ()), ((), (0,)), ((-1,), (0,)), ((), (0, -1))]


def options(law):
    return {"alpha": law.alpha, "vary": law.vary, "unit_mean": law.unit_mean}


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 4), (64,), (5, 7), (2, 3, 9)])
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_key_gives_the_coefficients_of_numpy(shape, law):
    for dims, p_dims in GRANULARITY:
        if any(axis not in range(-len(shape), len(shape)) for axis in dims + p_dims):
            continue
        if len({axis % len(shape) for axis in p_dims}) < len(p_dims):
            continue
        granularity = {"broadcast_dims": dims, "p_broadcast_dims": p_dims}
        expected = quantal.numpy.coefficients(law, *coefficient_shapes(shape, dims, p_dims), KEY)
        got = dilute(torch.ones(shape), law.rate, generator=KEY, **options(law), **granularity)
        np.testing.assert_array_equal(got.numpy(), np.broadcast_to(expected, shape))
        layer = QSD(law.rate, generator=KEY, **options(law), **granularity)
        for call in range(3):
            mask = coefficient_shapes(shape, dims, p_dims)
            expected = quantal.numpy.coefficients(law, *mask, KEY.fold_in(call))
            got = layer(torch.ones(shape)).numpy()
            np.testing.assert_array_equal(got, np.broadcast_to(expected, shape))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 4), (64,), (5, 7), (2, 3, 1), (2, 3, 9)])
def test_other_devices_draw_what_numpy_draws_for_cpus(shape):
    cpu = torch.device("cpu")
    here, there = source(KEY, cpu, Code.EAGER), source(KEY, cpu, Code.TRANSFORMED)
    assert type(here) is KeyOnCPU
    assert type(there) is type(source(KEY, torch.device("meta"), Code.EAGER)) is KeyOnDevice
    for name in ("indices", "shared_indices", "levels"):
        expected, got = (getattr(source, name)(shape) for source in (here, there))
        assert got.dtype == expected.dtype
        assert got.is_contiguous()
        assert expected.is_contiguous()
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_calls_are_counted_in_training_only_and_can_be_resumed():
    first, second = (QSD(0.5, 1.0, generator=KEY) for _ in range(2))
    x = torch.ones(100)
    first.eval()(x)
    assert first.calls == 0
    outputs = [first.train()(x) for _ in range(5)]
    assert first.calls == 5
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(outputs, 2))
    second.calls = 3
    assert torch.equal(second(x), outputs[3])


def binomial_p_value(count, n, p):
    return stats.binomtest(count, n, p).pvalue


@pytest.mark.parametrize("generator", [None, torch.Generator], ids=["global", "own"])
@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("p_dims", [(), (0,)])
def test_the_streams_of_torch_follow_the_law(law, generator, p_dims):
    torch.manual_seed(0)
    n = 2**18
    # With shared probabilities the units of a column are dependent: then one per column is enough.
    x = torch.ones(1, n)
    generator = generator and generator().manual_seed(1)
    c = dilute(x, law.rate, generator=generator, p_broadcast_dims=p_dims, **options(law))[0].numpy()
    assert binomial_p_value(np.count_nonzero(c == 0), n, law.rate) > ALARM / 2
    # Dvoretzky-Kiefer-Wolfowitz, and 2⁻¹⁵ for the steps of a table; at the values themselves, since
    # the law may have an atom there.
    radius = math.sqrt(math.log(4 / ALARM) / (2 * n)) + 2**-15
    c = np.sort(c.astype(float))
    slack = 1 + 1e-6  # a float32 may lie a rounding below the atom
    upto = np.searchsorted(c, c, side="right") / n
    below = np.searchsorted(c, c, side="left") / n
    assert np.all(law.cdf(c * slack) >= upto - radius)
    assert np.all(np.where(c > 0, law.cdf(c / slack - 1e-9), 0) - radius <= np.maximum(below, upto))


def test_each_call_draws_its_row():
    law = Dilution(0.3, 0.2)  # 19660.8 cells of 65536 are zero: four calls in five have one more
    torch.manual_seed(0)
    n = 4000
    layer, x = QSD(law.rate, law.alpha), torch.ones(3)
    told_apart = torch.tensor([1.0, 2.0]).repeat_interleave(2**16)  # the number of each row
    layer._tables = layer._tables._replace(values=told_apart)
    rows = [set(layer(x).tolist()) for _ in range(n)]
    assert all(len(row) == 1 for row in rows)
    second = rows.count({2.0})
    assert binomial_p_value(second, n, table(law).threshold / LEVELS) > ALARM


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dims", [(), (1,)])
@pytest.mark.parametrize("inplace", [False, True])
def test_products_and_gradients_are_exact(dtype, dims, inplace):
    law = Dilution(0.3, 0.2)
    shape = (33, 50)
    x = torch.randn(shape).to(dtype).requires_grad_()
    upstream = torch.randn(shape).to(dtype)
    mask = coefficient_shapes(shape, dims)
    c = torch.from_numpy(quantal.numpy.coefficients(law, *mask, KEY))
    wide = torch.float64 if dtype == torch.float64 else torch.float32

    y = dilute(x.clone(), 0.3, 0.2, generator=KEY, broadcast_dims=dims, inplace=inplace)
    y.backward(upstream)
    assert y.dtype == x.grad.dtype == dtype
    assert torch.equal(y, (x.detach().to(wide) * c.to(wide)).to(dtype))
    assert torch.equal(x.grad, (upstream.to(wide) * c.to(wide)).to(dtype))


@pytest.mark.parametrize("p_dims", [(), (0,)])
@pytest.mark.parametrize("generator", [None, "own", KEY], ids=["global", "own", "key"])
def test_forward_and_backward_share_one_draw(p_dims, generator):
    generator = torch.Generator() if generator == "own" else generator
    x = torch.ones(64, 256, requires_grad=True)
    y = dilute(x, 0.3, 0.2, generator=generator, p_broadcast_dims=p_dims)
    y.sum().backward()
    assert torch.equal(y, x.grad)
    assert 0 < (y == 0).sum() < y.numel()


def test_inplace_writes_into_the_input():
    x = torch.ones(100)
    assert QSD(0.5, 1.0, inplace=True)(x) is x
    assert (x == 0).any()
    x = torch.ones(100, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        QSD(0.5, 1.0, inplace=True)(x)


# torch 2.13 loads its own rules of forward-mode differentiation by a way that it calls deprecated.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_double_backward_and_forward_mode():
    x = torch.randn(20, 30, dtype=torch.float64, requires_grad=True)
    y = dilute(x, 0.3, 0.2, generator=KEY)
    c = (y / x).detach()
    (gradient,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), x)
    torch.testing.assert_close(second, 6 * c**3 * x.detach())
    call = lambda x: dilute(x, 0.3, 0.2, generator=KEY)  # noqa: E731
    small = x[:3, :4].detach().requires_grad_()
    assert torch.autograd.gradcheck(call, small, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, small)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("alpha", [1e-3, 0.2, 1e6, math.inf])
@pytest.mark.parametrize("rate", [0.0, 1e-4, 0.5, 0.9, 1.0])
def test_never_nan(dtype, alpha, rate):
    x = torch.ones(5000, dtype=dtype, requires_grad=True)
    for p_dims in ((), (0,)):
        y = QSD(rate, alpha, p_broadcast_dims=p_dims)(x)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        assert torch.isfinite(y).all()
        assert torch.isfinite(gradient).all()
        if rate == 0:
            assert y is x
        if rate == 1:
            assert not y.any()
            assert not gradient.any()


def test_rate_one_gives_zeros_even_for_infinite_inputs():
    x = torch.tensor([math.inf, math.nan, 1.0])
    assert not QSD(1.0, 1.0)(x).any()
    assert QSD(1.0, 1.0, inplace=True)(x) is x
    assert not x.any()


@pytest.mark.parametrize(
    ("options", "most"),
    [({}, 2), ({"generator": KEY}, 2), ({"p_broadcast_dims": 0}, 2), ({"inplace": True}, 2)],
    ids=str,
)
def test_two_bytes_an_element_are_kept_for_backward(options, most, monkeypatch):
    monkeypatch.setattr(_apply, "_FEW", FEW)

    def kept(layer, dtype=torch.float32, shape=(256, 512)):
        sizes = []
        # Not a leaf, so that it may be overwritten.
        x = torch.ones(shape, dtype=dtype, requires_grad=True) * 1
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: sizes.append(t.nbytes) or t, lambda t: t
        ):
            layer(x)
        return sum(sizes) / x.numel()

    one_number = 8 / (256 * 512)
    assert kept(torch.nn.Dropout(0.2)) == 4  # or the comparison in the documentation is out of date
    assert 0 < kept(QSD(0.2, 0.2, **options)) <= most + one_number
    assert 0 < kept(QSD(0.2, 0.2, **options), torch.float16) <= most + one_number
    # Where there are few, time is worth more: as many as dropout keeps.
    assert kept(QSD(0.2, 0.2, **options), shape=(64, 64)) == 4


@pytest.mark.parametrize("shape", [(), (0,), (7,), (4, 8), (5, 7)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_few_units_draw_what_they_would_draw_among_many(monkeypatch, shape, dtype):
    x = torch.randn(shape).to(dtype)
    drawn = {}
    for few in (0, FEW):
        monkeypatch.setattr(_apply, "_FEW", few)
        stream = torch.Generator().manual_seed(5)
        torch.manual_seed(3)
        calls = [(None, ()), (stream, ()), (None, range(len(shape))), (None, ())]
        drawn[few] = [
            dilute(x, 0.3, 0.2, generator=generator, broadcast_dims=axes)
            for generator, axes in calls
            for _ in range(5)  # both rows of the table
        ]
    for one, other in zip(*drawn.values(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
