"""Whole-graph compilation without recompiling, and exports without a trace."""

import functools
import io

import numpy as np
import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import quantal
import quantal.numpy
from quantal import Dilution
from quantal.torch import QSD, QSD2d, dilute
from quantal.torch._draws import draw_by_key_in_graph
from quantal.torch._tables import tables, tables_in_graph

KEY = quantal.key(11)
pytestmark = [
    # torch 2.13 on its own account: importing the CPU back end of inductor, and exporting to ONNX.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is depr:FutureWarning"),
]


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def coefficients(function, x):
    """Run forward and backward; return both, which must be the same coefficients."""
    x = x.detach().requires_grad_()
    y = function(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return y, gradient


@pytest.mark.parametrize("p_dims", [(), (0,)])
@pytest.mark.parametrize("functional", [False, True])
def test_full_graph_with_dynamic_shapes(p_dims, functional):
    if functional:
        call = lambda x: dilute(x, 0.3, 0.2, p_broadcast_dims=p_dims)  # noqa: E731
    else:
        call = QSD(0.3, 0.2, p_broadcast_dims=p_dims)
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=counter)
    for shape in ((8, 13), (16, 64), (33, 7)):
        y, gradient = coefficients(compiled, torch.ones(shape))
        assert torch.equal(y, gradient)
        assert 0 < (y == 0).sum() < y.numel()
    values = tables(Dilution(0.3, 0.2), bool(p_dims), torch.device("cpu")).values
    assert torch.isin(y, values).all()
    assert counter.frame_count == 1


def test_two_calls_in_one_graph_have_their_own_law_and_draw():
    def call(x):
        return dilute(x, 0.1, 0.2), dilute(x, 0.9, 5.0), dilute(x, 0.9, 5.0)

    first, second, third = torch.compile(call, fullgraph=True)(torch.ones(10000))
    # P(a false alarm) < 1e-100: 50 standard deviations.
    assert (first == 0).float().mean() < 0.3 < 0.7 < (second == 0).float().mean()
    assert not torch.equal(second, third)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_no_recompiling(backend):
    counter = CompileCounterWithBackend(backend)
    layer = QSD(0.5, 1.0)
    model = nn.Sequential(nn.Linear(8, 32), layer)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    x = torch.randn(64, 8)
    for rate in np.linspace(0.05, 0.95, 10):
        layer.p, layer.alpha = float(rate), float(10 * rate)
        y = compiled(x)
        y.sum().backward()
        values = tables(layer.dilution, False, torch.device("cpu")).values
        with torch.no_grad():
            c = (y / model[0](x)).flatten()
        # Each coefficient is in the table of the new law.
        nearest = values.sort().values
        at = torch.searchsorted(nearest, c).clamp(max=len(nearest) - 1)
        off = torch.minimum((nearest[at] - c).abs(), (nearest[(at - 1).clamp(min=0)] - c).abs())
        assert off.max() < 1e-3 * nearest.max()
        assert c.max() <= layer.dilution.ceiling * 1.001
    assert counter.frame_count == 1
    for flip in range(20):
        model.train(bool(flip % 2))
        compiled(x)
    assert counter.frame_count == 2


def test_a_key_means_the_same_in_eager_and_compiled_code():
    counter = CompileCounterWithBackend("inductor")
    layer = QSD(0.3, 0.2, generator=KEY)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend=counter)
    for call, shape in enumerate([(5, 7), (8, 8), (2, 9), (4, 4), (6, 11)]):
        run = layer if call == 3 else compiled  # eager and compiled calls share the count
        y, gradient = coefficients(run, torch.ones(shape))
        key = KEY.fold_in(call)
        expected = quantal.numpy.coefficients(Dilution(0.3, 0.2), shape, None, key)
        np.testing.assert_array_equal(y.detach().numpy(), expected)
        np.testing.assert_array_equal(gradient.numpy(), expected)
    assert layer.calls == 5
    assert counter.frame_count == 1


def test_a_key_as_an_argument_of_a_graph():
    counter = CompileCounterWithBackend("aot_eager")

    @torch.compile(fullgraph=True, dynamic=True, backend=counter)
    def call(x, key):
        return dilute(x, 0.3, 0.2, generator=key, p_broadcast_dims=0)

    for step in range(5):
        key = KEY.fold_in(step)
        y, gradient = coefficients(functools.partial(call, key=key), torch.ones(6, 10))
        expected = quantal.numpy.coefficients(Dilution(0.3, 0.2), (6, 10), (1, 10), key)
        np.testing.assert_array_equal(y.detach().numpy(), expected)
        assert torch.equal(y, gradient)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("p_dims", [(), (0,)])
def test_a_generator_means_the_same_in_eager_and_broken_graphs(p_dims):
    def layer():
        generator = torch.Generator().manual_seed(3)
        return QSD(0.3, 0.2, p_broadcast_dims=p_dims, generator=generator)

    eager, compiled = layer(), torch.compile(layer(), dynamic=True)
    for shape in ((8, 13), (16, 64), (33, 7)):
        expected, _ = coefficients(eager, torch.ones(shape))
        y, gradient = coefficients(compiled, torch.ones(shape))
        assert torch.equal(y, expected)
        assert torch.equal(gradient, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_precision_in_a_graph(dtype):
    layer = torch.compile(QSD(0.3, 0.2, generator=KEY), fullgraph=True)
    x = torch.randn(40, 50).to(dtype)
    expected = dilute(x, 0.3, 0.2, generator=KEY.fold_in(0))
    assert torch.equal(layer(x), expected)


def test_checkpoint_in_a_graph():
    model = nn.Sequential(nn.Linear(32, 64), QSD(0.3, 0.2))

    def call(x):
        return checkpoint(model, x, use_reentrant=False)

    x = torch.randn(16, 32, requires_grad=True)
    y = torch.compile(call, fullgraph=True)(x)
    with torch.no_grad():
        c = y / model[0](x)
    y.sum().backward()
    torch.testing.assert_close(model[0].bias.grad, c.sum(0), rtol=1e-3, atol=1e-3)


def test_custom_operators_keep_their_promises():
    cpu = torch.device("cpu")
    torch.library.opcheck(tables_in_graph, (0.3, 0.2, "pq", False, False, cpu))
    torch.library.opcheck(tables_in_graph, (0.3, 0.2, "q", True, True, cpu))
    for shared, p_shape in ((False, None), (True, [1, 7])):
        made = list(tables(Dilution(0.3, 0.2), shared, cpu))
        words = KEY.word0, KEY.word1
        torch.library.opcheck(draw_by_key_in_graph, (made, [5, 7], p_shape, *words, None))


class Small(nn.Module):
    def __init__(self, maps, units):
        super().__init__()
        self.convolution, self.maps = nn.Conv2d(3, 4, 3), maps
        self.linear, self.units = nn.Linear(4, 5), units

    def forward(self, x):
        y = self.maps(self.convolution(x)).relu().mean((2, 3))
        return self.units(self.linear(y)) * 2


def pair():
    torch.manual_seed(0)
    with_qsd = Small(QSD2d(0.5, 1.0), QSD(0.5, 1.0)).eval()
    bare = Small(nn.Identity(), nn.Identity()).eval()
    bare.load_state_dict(with_qsd.state_dict())
    return with_qsd, bare, torch.randn(2, 3, 8, 8)


def test_export_leaves_nothing_in_the_graph():
    with_qsd, bare, x = pair()

    def targets(model):
        graph = torch.export.export(model, (x,)).graph
        return [str(node.target) for node in graph.nodes if node.op == "call_function"]

    assert targets(with_qsd) == targets(bare)


def test_export_in_training_mode():
    _, _, x = pair()
    model = Small(QSD2d(0.5, 1.0), QSD(0.5, 1.0))
    exported = torch.export.export(model, (x,)).module()
    assert not torch.equal(exported(x), exported(x))


def test_onnx_leaves_nothing_in_the_graph():
    pytest.importorskip("onnxscript")
    import onnx

    with_qsd, bare, x = pair()

    def operators(model):
        program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
        stream = io.BytesIO()
        program.save(stream)
        loaded = onnx.load_from_string(stream.getvalue())
        return [node.op_type for node in loaded.graph.node]

    assert operators(with_qsd) == operators(bare)


def test_jit_trace_leaves_nothing_in_the_graph():
    with_qsd, bare, x = pair()
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        kinds = [
            [node.kind() for node in torch.jit.trace(model, x).inlined_graph.nodes()]
            for model in (with_qsd, bare)
        ]
    assert [k for k in kinds[0] if k != "prim::GetAttr"] == [
        k for k in kinds[1] if k != "prim::GetAttr"
    ]
