"""Whatever works with torch's own dropout in eager code works with QSD: each test runs both."""

import io
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch.autograd.functional import hessian, jacobian
from torch.func import linearize
from torch.testing._internal.two_tensor import TwoTensor

import quantal
from quantal.torch import QSD, QSD1d, QSD2d, QSD3d, convert, dilute

# With alpha=inf both follow the same law.
MAKERS = {
    "dropout": lambda p=0.5, **options: nn.Dropout(p, **options),
    "QSD": lambda p=0.5, **options: QSD(p, math.inf, **options),
}
both = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
# torch 2.13 on its own account: forward-mode rules, nested tensors, eager quantization.
pytestmark = [
    pytest.mark.usefixtures("both_ways_back"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch:UserWarning"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max:UserWarning"),
]


# --- writing into the output -------------------------------------------------------------------


@both
@pytest.mark.parametrize("axes", [{}, {"broadcast_dims": 0}, {"p_broadcast_dims": 0}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_output_may_be_written_into(make, axes, dtype):
    layer = make() if make is MAKERS["dropout"] else make(**axes)
    x = torch.randn(8, 30).to(dtype).requires_grad_()
    for write in (
        nn.ReLU(inplace=True),
        lambda y: y.add_(x),
        lambda y: y.masked_fill_(y > 0, 0),
        lambda y: y.view(-1).mul_(2),
    ):
        torch.manual_seed(0)
        expected = layer(x).clone()
        write(expected)
        torch.manual_seed(0)
        y = layer(x)
        write(y)
        assert torch.equal(y, expected)
        upstream = torch.randn_like(y)
        got, wanted = (torch.autograd.grad(z, x, upstream)[0] for z in (y, expected))
        assert torch.equal(got, wanted)


@both
def test_writing_into_a_view_and_on(make):
    x = torch.ones(6, 50, requires_grad=True)
    copied = x * 1
    row = copied[0]
    y = make(inplace=True)(row)
    y += 1
    copied.sum().backward()
    assert torch.equal(copied[0], x.grad[0] + 1)
    assert (x.grad[1:] == 1).all()


# --- classes and attributes ---------------------------------------------------------------------


NATIVE = {QSD: nn.Dropout, QSD1d: nn.Dropout1d, QSD2d: nn.Dropout2d, QSD3d: nn.Dropout3d}


@pytest.mark.parametrize("layer", NATIVE)
def test_a_layer_is_an_instance_of_what_it_replaces_and_of_nothing_else(layer):
    made, native = layer(0.5, 1.0), NATIVE[layer](0.5)
    for kind in (*NATIVE.values(), nn.AlphaDropout, nn.modules.dropout._DropoutNd):
        assert isinstance(made, kind) == isinstance(native, kind)


@both
def test_the_usual_ways_to_switch_dropout(make):
    model = nn.Sequential(nn.Linear(50, 50), make()).eval()
    x = torch.ones(4, 50)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.train()
    assert (model(x) == 0).any()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0
    assert torch.equal(model(x), model[0](x))


@pytest.mark.parametrize("number", [torch.tensor(0.25), np.array(0.25), np.float32(0.25)], ids=repr)
def test_a_number_without_axes_is_a_number(number):
    assert nn.Dropout(number).p == 0.25
    layer = QSD(number, number)
    assert (layer.p, layer.alpha) == (0.25, 0.25)
    layer.p = layer.alpha = number
    assert type(layer.p) is type(layer.alpha) is float
    x = torch.ones(50)
    key = quantal.key(0)
    assert torch.equal(
        dilute(x, number, number, generator=key), dilute(x, 0.25, 0.25, generator=key)
    )


@both
def test_a_module_is_loaded_with_weights_only(make):
    stream = io.BytesIO()
    torch.save(nn.Sequential(make(0.25)), stream)
    stream.seek(0)
    with torch.serialization.safe_globals([nn.Sequential, type(make())]):
        assert torch.load(stream, weights_only=True)[0].p == 0.25


def test_the_state_of_torchs_own_layer():
    """The layer takes its rate; but a new one, as a pickle makes it, would have no alpha."""
    native = nn.Dropout(0.3, inplace=True).eval()
    layer = QSD(0.1, 2.0, generator=quantal.key(0))
    layer.__setstate__(native.__getstate__())
    assert (layer.p, layer.alpha, layer.inplace, layer.training) == (0.3, 2.0, True, False)
    assert layer.generator == quantal.key(0)
    y = layer.train()(torch.ones(1000))
    assert abs((y == 0).float().mean() - 0.3) < 0.08
    with pytest.raises(
        ValueError, match=r"alpha: expected a number; the state of a layer of dropout"
    ):
        QSD.__new__(QSD).__setstate__(native.__getstate__())


def test_all_that_a_layer_has_is_loaded_with_weights_only():
    layer = QSD(0.5, 2.0, True, vary="q", p_broadcast_dims=(0,), generator=quantal.key(3))
    layer(torch.ones(3))
    stream = io.BytesIO()
    torch.save(layer, stream)
    stream.seek(0)
    with torch.serialization.safe_globals([QSD]):
        loaded = torch.load(stream, weights_only=True)
    assert repr(loaded) == repr(layer)
    assert (loaded.dilution, loaded.calls, loaded.generator) == (layer.dilution, 1, quantal.key(3))
    assert torch.equal(loaded(torch.ones(9)), layer(torch.ones(9)))


# --- inputs of all kinds ------------------------------------------------------------------------


ANY = {
    "integers": lambda: torch.ones(3, dtype=torch.int64),
    "booleans": lambda: torch.ones(3, dtype=torch.bool),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.parametrize("make_input", ANY.values(), ids=ANY)
def test_what_is_not_diluted_is_returned_as_it_is(make_input):
    x = make_input()
    native = nn.Dropout(0.5).eval()(x)
    assert native is x or x.is_nested  # of which torch makes a new one
    for layer in (QSD(0.5, 1.0).eval(), QSD(0, 1.0)):
        assert layer(x) is x
    assert dilute(x, 0.5, 1.0, training=False) is x
    assert dilute(x, 0, 1.0) is x


@both
def test_eager_quantization(make):
    import torch.ao.quantization as quantization

    model = nn.Sequential(quantization.QuantStub(), nn.Linear(4, 4), make()).eval()
    model.qconfig = quantization.get_default_qconfig("fbgemm")
    prepared = quantization.prepare(model)
    prepared(torch.randn(3, 4))
    assert quantization.convert(prepared)(torch.randn(3, 4)).is_quantized


@both
def test_wrapper_subclasses(make):
    x = TwoTensor(torch.full((50,), 3.0), torch.full((50,), 3.0)).requires_grad_()
    y = make()(x)
    y.sum().backward()
    for inner, gradient in ((y.a, x.grad.a), (y.b, x.grad.b)):
        assert set(inner.tolist()) == {0.0, 6.0}
        assert torch.equal(inner, 3 * gradient)


@both
def test_plain_subclasses(make):
    class Own(torch.Tensor):
        pass

    assert type(make()(torch.ones(5).as_subclass(Own))) is Own


@both
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
@pytest.mark.parametrize("p", [0.5, 1.0])
def test_nested_tensors(make, layout, p):
    parts = [torch.full((3, 40), 3.0), torch.full((5, 40), 3.0)]
    x = torch.nested.nested_tensor(parts, layout=layout, requires_grad=True)
    y = make(p)(x)
    assert y.is_nested
    assert y.layout == layout
    upstream = torch.nested.as_nested_tensor([torch.ones(3, 40), torch.ones(5, 40)], layout=layout)
    if layout == torch.jagged:
        upstream = torch.ones_like(y)
    (gradient,) = torch.autograd.grad(y, x, upstream)
    for part, slope in zip(y.unbind(), gradient.unbind(), strict=True):
        assert set(part.flatten().tolist()) == ({0.0, 6.0} if p == 0.5 else {0.0})
        assert torch.equal(part, 3 * slope)


def test_jagged_tensors_keep_their_shape():
    """Also those that were transposed, which torch's own dropout refuses."""
    x = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
    for y in (x, x.transpose(1, 2), x.unsqueeze(-1)):
        assert QSD(0.5, 1.0)(y).shape == y.shape


def test_nested_tensors_have_no_axes_to_share_over():
    x = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(5, 4)], layout=torch.jagged)
    for name in ("broadcast_dims", "p_broadcast_dims"):
        with pytest.raises(ValueError, match=f"{name}: expected \\(\\) for a nested tensor"):
            dilute(x, 0.5, 1.0, **{name: 0})


@both
def test_infinite_and_nan(make):
    """torch multiplies a dropped unit by 0, which is NaN where it was not finite."""
    x = torch.tensor([math.inf, -math.inf, math.nan]).repeat(50).requires_grad_()
    y = make()(x)
    assert not (y == 0).any()
    assert torch.isnan(y[0::3]).any()
    ones = torch.ones(150, requires_grad=True)
    (gradient,) = torch.autograd.grad(make()(ones), ones, x.detach())
    assert not (gradient == 0).any()
    assert torch.isnan(gradient[0::3]).any()


@pytest.mark.filterwarnings("ignore:dropout[23]d. Received a:UserWarning")
@pytest.mark.parametrize(
    ("native", "least"), [(nn.Dropout1d, 2), (nn.Dropout2d, 2), (nn.Dropout3d, 2)]
)
def test_after_convert_any_number_of_axes_means_what_it_meant(native, least):
    layer = convert(native(0.5), math.inf)
    for ndim in range(least, 6):
        shape = (12, 11, 3, 2, 2)[:ndim]
        masks = []
        for made in (layer, native(0.5)):
            try:
                masks.append(made(torch.ones(shape)) == 0)
            except RuntimeError:
                assert made is not layer
        # Along which axes all units are dropped or kept together.
        alike = [[bool((m == m.narrow(axis, 0, 1)).all()) for axis in range(ndim)] for m in masks]
        assert all(one == other for one, other in pairwise(alike))


# --- gradients of all kinds ---------------------------------------------------------------------


@both
@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("axes", [{}, {"broadcast_dims": 0}, {"p_broadcast_dims": 0}], ids=str)
def test_batches_of_gradients(make, create_graph, axes):
    layer = make() if make is MAKERS["dropout"] else make(**axes)
    x = torch.ones(4, 10, requires_grad=True)
    y = layer(x)
    (gradient,) = torch.autograd.grad(
        y, x, torch.eye(40).view(40, 4, 10), is_grads_batched=True, create_graph=create_graph
    )
    assert torch.equal(gradient.view(40, 40), torch.diag(y.flatten()))


@both
@pytest.mark.parametrize("vectorize", [False, True])
def test_jacobian_and_hessian(make, vectorize):
    layer, x = make(), torch.ones(30)
    slopes = jacobian(layer, x, vectorize=vectorize)
    assert torch.equal(slopes, torch.diag(slopes.diagonal()))
    assert set(slopes.diagonal().tolist()) == {0.0, 2.0}
    second = hessian(lambda x: (layer(x) ** 3).sum(), x, vectorize=vectorize)
    assert set(second.diagonal().tolist()) == {0.0, 48.0}


# torch 2.13 on its own account, where a function captures a tensor.
@pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning")
@both
def test_linearize(make):
    layer = make()
    y, slope = linearize(lambda x: layer(x), torch.ones(50))
    for found in (y, slope(torch.ones(50))):
        assert set(found.tolist()) == {0.0, 2.0}


@both
@pytest.mark.parametrize("inplace", [False, True])
def test_forward_mode(make, inplace):
    with forward_ad.dual_level():
        x = forward_ad.make_dual(torch.ones(50), torch.full((50,), 3.0))
        y = forward_ad.unpack_dual(make(inplace=inplace)(x * 1))
    assert torch.equal(3 * y.primal, y.tangent)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, 3, "x", [1.0], np.ones(3)], ids=str)
def test_what_is_no_tensor_is_an_error_in_every_mode(wrong):
    message = "x: expected a torch.Tensor. Received: x="
    for training in (True, False):
        for layer in (QSD(0.5, 1.0), QSD(0.0, 1.0), QSD2d(0.5, 1.0)):
            with pytest.raises(TypeError, match=message):
                layer.train(training)(wrong)
        with pytest.raises(TypeError, match=message):
            dilute(wrong, 0.5, 1.0, training=training)


def test_wrong_values_of_settings():
    layer = QSD(0.5, 1.0)
    for wrong in ("x", None, 0.5):
        with pytest.raises(TypeError, match=r"dilution: expected a quantal\.Dilution\. Received"):
            layer.dilution = wrong
    for wrong in ("x", 1, None):
        with pytest.raises(TypeError, match=r"training: expected True or False\. Received"):
            dilute(torch.ones(3), 0.5, 1.0, training=wrong)
    for wrong in ("x", 1.5, -1, 2**32):
        with pytest.raises((TypeError, ValueError), match="calls: expected an integer in"):
            layer.calls = wrong
    for wrong in (3, "x", nn.Linear(1, 1)):
        with pytest.raises(TypeError, match="generator: expected"):
            layer.generator = wrong
    assert layer.generator is None


def test_one_name_for_the_rate():
    assert QSD(rate=0.2, alpha=1.0).p == QSD(0.2, 1.0).rate == 0.2
    assert QSD2d(rate=0.2, alpha=1.0).p == 0.2
    assert QSD(alpha=1.0).p == nn.Dropout().p
    with pytest.raises(ValueError, match=r"rate: expected p or rate, not both\. Received"):
        QSD(0.5, 1.0, rate=0.2)
