"""Whatever records or compiles torch's own dropout does the same to QSD: each test runs both."""

import io
import math
import pickle
import warnings

import pytest
import torch
from functorch.compile import aot_function, nop
from torch import nn
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

import quantal
from quantal.torch import QSD, QSD2d, dilute

MAKERS = {"dropout": lambda: nn.Dropout(0.5), "QSD": lambda: QSD(0.5, math.inf)}
both = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
X = torch.ones(4, 50)
pytestmark = [
    # torch 2.13 on its own account: TorchScript, its exporters, quantization, the compiler.
    pytest.mark.filterwarnings("ignore:.torch.jit.*is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.onnx:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.` is depr:FutureWarning"),
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor, torch:UserWarning"),
    pytest.mark.filterwarnings("ignore:Please use quant_min and quant_max:UserWarning"),
]


def model(make):
    return nn.Sequential(nn.Linear(50, 50), make())


def drops_anew(call, x=X):
    """Whether units are dropped, and other ones in each call."""
    first, second = call(x), call(x)
    return bool((first == 0).any() and not torch.equal(first == 0, second == 0))


# --- torch.fx -----------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("training", [True, False])
def test_symbolic_trace(make, training):
    traced = symbolic_trace(model(make).train(training))
    nodes = [(node.op, node.target) for node in traced.graph.nodes]
    assert nodes[1:3] == [("call_module", "0"), ("call_module", "1")]
    assert drops_anew(traced) == training
    traced.train(not training)
    assert drops_anew(traced) != training


@both
def test_symbolic_trace_of_the_layer_itself(make):
    traced = symbolic_trace(make())
    assert [node.op for node in traced.graph.nodes] == ["placeholder", "call_function", "output"]
    assert drops_anew(traced)
    assert drops_anew(pickle.loads(pickle.dumps(traced)))


def test_symbolic_trace_of_maps_and_of_the_function():
    class Code(nn.Module):
        def __init__(self):
            super().__init__()
            self.maps = QSD2d(0.5, 1.0)

        def forward(self, x):
            return dilute(self.maps(x), 0.5, 1.0, training=self.training, broadcast_dims=0)

    traced = symbolic_trace(Code())
    targets = [node.target for node in traced.graph.nodes]
    assert targets[1:3] == ["maps", dilute]
    assert drops_anew(traced, torch.ones(2, 3, 4, 4))


@both
def test_quantization_by_fx(make):
    from torch.ao.quantization import get_default_qat_qconfig_mapping, get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx, prepare_qat_fx

    ready = prepare_fx(model(make).eval(), get_default_qconfig_mapping("fbgemm"), (X,))
    ready(X)
    assert convert_fx(ready)(X).shape == X.shape
    ready = prepare_qat_fx(model(make).train(), get_default_qat_qconfig_mapping("fbgemm"), (X,))
    assert drops_anew(ready)
    ready(X).sum().backward()
    assert convert_fx(ready.eval())(X).shape == X.shape


@both
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(make, mode):
    assert drops_anew(make_fx(make(), tracing_mode=mode)(X))


@both
@pytest.mark.parametrize("x", [X, torch.ones(700, 100)], ids=["few", "many"])
def test_make_fx_before_dispatch(make, x):
    assert drops_anew(make_fx(make(), pre_dispatch=True)(x), x)


@both
def test_make_fx_with_a_gradient(make):
    layer = make()

    def call(x):
        y = layer(x)
        return y, torch.autograd.grad(y.sum(), x)[0]

    y, gradient = make_fx(call)(X.clone().requires_grad_())(X.clone().requires_grad_())
    assert torch.equal(y, gradient)


# --- compilers ----------------------------------------------------------------------------------


@both
def test_aot_function(make):
    layer = make()
    compiled = aot_function(lambda x: layer(x), fw_compiler=nop, bw_compiler=nop)
    x = X.clone().requires_grad_()
    assert drops_anew(compiled, x)
    y = compiled(x)
    y.sum().backward()
    assert torch.equal(y, x.grad)


@both
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("shared", [False, True])
def test_masks_of_compiled_code_are_those_of_eager_code(make, backend, shared):
    torch._dynamo.reset()
    layer = make()
    if shared and isinstance(layer, QSD):
        layer = QSD(0.5, 1.0, p_broadcast_dims=0)
    x = torch.ones(7, 13)
    with torch._inductor.config.patch(fallback_random=True):
        torch.manual_seed(3)
        expected = [layer(x), layer(x)]
        compiled = torch.compile(layer, backend=backend, fullgraph=True)
        compiled(x)
        torch.manual_seed(3)
        assert all(torch.equal(compiled(x), y) for y in expected)


@both
def test_fake_tensors(make):
    layer = make()
    with FakeTensorMode() as mode:
        x = torch.ones(4, 50, requires_grad=True)
        y = layer(x)
        y.sum().backward()
        assert type(y) is type(x.grad) is FakeTensor
    outside = layer(mode.from_tensor(X))
    assert type(outside) is FakeTensor
    assert outside.shape == X.shape
    assert drops_anew(layer)  # and they have left no trace
    with FakeTensorMode():
        made_there = make()
        made_there.p = 0.25
    assert drops_anew(made_there)


# --- exporters ----------------------------------------------------------------------------------


@both
def test_jit_trace_in_training(make):
    traced = torch.jit.trace(model(make), X, check_trace=False)
    assert drops_anew(traced)
    assert drops_anew(traced, torch.ones(9, 50))  # not only for the shape that it has seen
    traced(X).sum().backward()


@pytest.mark.parametrize("axes", [{"broadcast_dims": 1}, {"p_broadcast_dims": 0}], ids=str)
def test_jit_trace_of_shared_coefficients(axes):
    layer = QSD(0.5, 1.0, **axes)
    traced = torch.jit.trace(layer, X, check_trace=False)
    y = traced(torch.ones(90, 70))
    if "broadcast_dims" in axes:
        assert torch.equal(y, y[:, :1].expand_as(y))
    else:  # a unit has one size in all samples that keep it
        assert all(len(set(column.tolist()) - {0.0}) <= 1 for column in y.T)
    assert len(set(y.flatten().tolist())) > 20
    for source in (quantal.key(0), torch.Generator()):
        with pytest.raises(ValueError, match=r"generator: expected None for torch\.jit\.trace"):
            torch.jit.trace(QSD(0.5, 1.0, generator=source, **axes), X, check_trace=False)


@both
def test_jit_script_in_evaluation(make):
    scripted = torch.jit.script(model(make).eval())
    assert not drops_anew(scripted)
    assert not drops_anew(scripted, torch.ones(2, 50))


@both
def test_jit_script_leaves_the_model_as_it_is(make):
    native = model(make).eval()
    scripted, before = torch.jit.script(native), [type(m) for m in native.modules()]
    assert [type(m) for m in native.modules()] == before
    assert any(isinstance(m, torch.nn.Dropout) for m in native.modules())
    stream = io.BytesIO()
    torch.jit.save(scripted, stream)
    stream.seek(0)
    assert torch.equal(torch.jit.load(stream)(X), native(X))
    assert drops_anew(native.train())


def test_jit_script_in_training_is_an_error_in_words():
    message = r"training: expected False for torch\.jit\.script: call eval\(\) first"
    with pytest.raises(ValueError, match=message):
        torch.jit.script(model(MAKERS["QSD"]))
    scripted = torch.jit.script(model(MAKERS["QSD"]).eval()).train()
    with pytest.raises(torch.jit.Error, match="training: expected False for QSD in scripted code"):
        scripted(X)


@pytest.mark.parametrize("layer", [torch.nn.Dropout(0.0), QSD(0.0, alpha=1.0)])
def test_jit_script_in_training_where_nothing_is_drawn(layer):
    assert torch.equal(torch.jit.script(torch.nn.Sequential(layer).train())(X), X)


@both
@pytest.mark.parametrize("dynamo", [True, False])
def test_onnx_in_training(make, dynamo):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    stream, training = io.BytesIO(), {"training": torch.onnx.TrainingMode.TRAINING}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each version of an exporter has its own
        torch.onnx.export(model(make), (X,), stream, dynamo=dynamo, **({} if dynamo else training))
    loaded = onnx.load_from_string(stream.getvalue())
    onnx.checker.check_model(loaded)
    operators = {node.op_type for node in loaded.graph.node}
    assert operators & {"Dropout", "RandomUniformLike"}


@both
def test_export_in_training_serves_other_shapes(make):
    batch = torch.export.Dim("batch")
    program = torch.export.export(model(make), (X,), dynamic_shapes=({0: batch},))
    assert drops_anew(program.module(), torch.ones(9, 50))


@pytest.mark.parametrize("axes", [{}, {"p_broadcast_dims": 0}], ids=str)
def test_recorded_draws_follow_the_law(axes):
    """They choose their rows one by one, unlike those of eager code."""
    law, n = quantal.Dilution(0.3, 0.2), 2**18
    torch.manual_seed(0)
    traced = torch.jit.trace(QSD(law.rate, law.alpha, **axes), torch.ones(1, 8), check_trace=False)
    c = traced(torch.ones(1, n)).double()
    # P(a false alarm) < 1e-6: 5 standard deviations of each moment.
    for power in (1, 2):
        error = math.sqrt((law.moment(2 * power) - law.moment(power) ** 2) / n)
        assert abs(float((c**power).mean()) - law.moment(power)) < 5 * error
    dropped = float((c == 0).double().mean())
    assert abs(dropped - law.rate) < 5 * math.sqrt(law.rate * law.retain / n)
