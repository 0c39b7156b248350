"""The layer as a citizen of torch.nn: names, copies, devices, checkpoints, errors."""

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

import quantal
from quantal import Dilution
from quantal.torch import QSD, QSD1d, QSD2d, QSD3d, dilute

LAYERS = [QSD, QSD1d, QSD2d, QSD3d]


@pytest.mark.parametrize("layer", LAYERS)
def test_recognised_as_dropout(layer):
    made = layer(0.2, 0.3, True)
    assert isinstance(made, nn.modules.dropout._DropoutNd)
    assert (made.p, made.rate, made.alpha, made.inplace) == (0.2, 0.2, 0.3, True)
    assert repr(made) == f"{layer.__name__}(p=0.2, alpha=0.3, inplace=True)"
    assert layer(p=0.2, alpha=0.3, inplace=True).dilution == made.dilution == Dilution(0.2, 0.3)
    assert not made.state_dict()
    assert not list(made.buffers())


def test_repr_names_what_is_not_default():
    layer = QSD(0.2, 1.0, vary="q", unit_mean=True, broadcast_dims=1, p_broadcast_dims=(0,))
    assert repr(layer) == (
        "QSD(p=0.2, alpha=1.0, inplace=False, vary='q', unit_mean=True, broadcast_dims=1, "
        "p_broadcast_dims=(0,))"
    )
    assert repr(QSD2d(0.2, 1.0, p_broadcast_dims=0)).endswith("inplace=False, p_broadcast_dims=0)")


def test_parameters_change_in_mid_training():
    layer = QSD(0.5, 1.0, vary="q", generator=quantal.key(0))
    x = torch.ones(500)
    for name, value in (("p", 0.1), ("alpha", 7.0), ("rate", 0.3), ("p", 0.0), ("p", 0.9)):
        setattr(layer, name, value)
        assert getattr(layer, name) == value
        law = layer.dilution
        assert law.vary == "q"
        expected = dilute(
            x, law.rate, law.alpha, vary="q", generator=quantal.key(0).fold_in(layer.calls)
        )
        assert torch.equal(layer(x), expected)
    layer.dilution = Dilution.with_mean_gain(0.5, 1.25)
    assert (layer.p, layer.alpha) == (0.5, 1.5)


def copies(layer):
    yield copy.deepcopy(layer)
    yield pickle.loads(pickle.dumps(layer))
    stream = io.BytesIO()
    torch.save(layer, stream)
    stream.seek(0)
    yield torch.load(stream, weights_only=False)


@pytest.mark.parametrize("p_dims", [(), (0,)])
def test_copies_draw_the_same(p_dims):
    layer = QSD(0.3, 0.2, p_broadcast_dims=p_dims, generator=quantal.key(3))
    x = torch.ones(20, 30)
    layer(x)
    for made in copies(layer):
        assert made.calls == layer.calls
        assert torch.equal(made(x), copy.deepcopy(layer)(x))
    assert len(pickle.dumps(layer)) < 5000  # without the table
    own = QSD(0.3, 0.2, generator=torch.Generator().manual_seed(5))
    clones = list(copies(own))
    assert len({tuple(clone(x).flatten().tolist()) for clone in (*clones, own)}) == 1


@pytest.mark.parametrize("cast", ["half", "bfloat16", "double", "float"])
def test_casting_the_module_leaves_the_law_alone(cast):
    layer = QSD(0.3, 0.2, generator=quantal.key(3))
    expected = copy.deepcopy(layer)(torch.ones(100))
    model = getattr(nn.Sequential(nn.Linear(2, 2), layer), cast)()
    assert torch.equal(model[1](torch.ones(100)), expected)


def test_meta_device_and_back():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(100, 50), QSD(0.3, 0.2, generator=quantal.key(3)))
        y = model(torch.ones(4, 100))
    assert y.device.type == "meta"
    assert y.shape == (4, 50)
    x = torch.ones(100)
    expected = dilute(x, 0.3, 0.2, generator=quantal.key(3).fold_in(model[1].calls))
    assert torch.equal(model.to_empty(device="cpu")[1](x), expected)
    assert dilute(torch.ones(3, device="meta"), 0.3, 0.2, p_broadcast_dims=0).device.type == "meta"
    layer = QSD(0.3, 0.2).to("meta").to_empty(device="cpu")
    assert torch.equal(layer._tables.values, QSD(0.3, 0.2)._tables.values)
    compiled = torch.compile(QSD(0.3, 0.2).to("meta"), fullgraph=True, backend="aot_eager")
    assert (compiled(torch.ones(100)) == 0).any()


def test_fake_tensors_leave_no_trace():
    def both():
        x = torch.ones(10, 10, requires_grad=True)
        for y in (dilute(x, 0.321, 0.2), QSD(0.321, 0.2, p_broadcast_dims=0)(x)):
            (gradient,) = torch.autograd.grad(y.sum(), x)
            assert type(gradient) is type(y)
            yield y

    with FakeTensorMode():
        assert all(type(y) is not torch.Tensor for y in both())
    assert all(type(y) is torch.Tensor for y in both())


def test_tables_made_in_inference_mode_serve_in_training():
    with torch.inference_mode():
        assert dilute(torch.ones(3), 0.123, 0.2).shape == (3,)
        layer = QSD(0.124, 0.2, generator=quantal.key(0))
        layer(torch.ones(3))
    assert not any(part.is_inference() for part in layer._tables)
    x = torch.ones(3, requires_grad=True)
    dilute(x, 0.123, 0.2).sum().backward()
    layer(x).sum().backward()
    torch.compile(layer, fullgraph=True, backend="aot_eager")(x).sum().backward()
    assert layer.calls == 3


def test_strict_load_of_a_dropout_checkpoint():
    def model(dropout):
        return nn.Sequential(nn.Linear(4, 4), dropout, nn.BatchNorm1d(4))

    saved = model(nn.Dropout(0.5)).state_dict()
    diluted = model(QSD(0.5, 1.0))
    diluted.load_state_dict(saved, strict=True)
    assert diluted.state_dict().keys() == saved.keys()


def test_global_stream_is_untouched_by_an_own_source():
    x = torch.ones(1000)
    for generator in (torch.Generator(), quantal.key(0)):
        for options in ({}, {"p_broadcast_dims": 0}):
            before = torch.get_rng_state()
            dilute(x, 0.5, 1.0, generator=generator, **options)
            QSD(0.5, 1.0, generator=generator, **options)(x)
            assert torch.equal(torch.get_rng_state(), before)
    QSD(0.5, 1.0).eval()(x)
    QSD(0.0, 1.0)(x)
    assert torch.equal(torch.get_rng_state(), before)
    QSD(0.5, 1.0)(x)
    assert not torch.equal(torch.get_rng_state(), before)


def test_dispatch_takes_tensors():
    key = quantal.key(1)
    x = torch.ones(50)
    assert torch.equal(quantal.dilute(x, 0.5, 1.0, rng=key), dilute(x, 0.5, 1.0, generator=key))
    parameter = nn.Parameter(x)
    assert quantal.dilute(parameter, 0.5, 1.0, training=False) is parameter


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, r"alpha: expected a number above 0.*with_mean_gain"),
        ({"alpha": True}, TypeError, "alpha: expected"),
        ({"alpha": -1.0}, ValueError, "alpha: expected"),
        ({"alpha": 1.0, "vary": "r"}, ValueError, "vary: expected"),
        ({"alpha": 1.0, "generator": 3}, TypeError, "generator: expected a torch.Generator, a qu"),
        ({"alpha": 1.0, "broadcast_dims": 2}, ValueError, "broadcast_dims: expected distinct"),
        ({"alpha": 1.0, "p_broadcast_dims": "a"}, TypeError, "p_broadcast_dims: expected"),
    ],
    ids=str,
)
@pytest.mark.parametrize("training", [True, False])
def test_bad_arguments(arguments, error, message, training):
    x = torch.ones(2, 3)
    with pytest.raises(error, match=message):
        dilute(x, 0.5, training=training, **arguments)
    with pytest.raises(error, match=message):
        QSD(0.5, **arguments).train(training)(x)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64], ids=str)
def test_only_floating_point_is_diluted(dtype):
    message = "x: expected a floating-point array. Received: x=torch"
    with pytest.raises(TypeError, match=message):
        dilute(torch.ones(3, dtype=dtype), 0.5, 1.0)
    with pytest.raises(TypeError, match=message):
        QSD(0.5, 1.0)(torch.ones(3, dtype=dtype))


def test_without_torch_the_line_to_type():
    code = "import sys; sys.modules['torch'] = None; import quantal.torch"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "torch is not installed. Type: pip install 'quantal[torch]'" in run.stderr


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize("call", [QSD(0.5, 1.0), lambda x: dilute(x, 0.5, 1.0)])
def test_eager_code_asks_once_whether_it_is_compiled(call, size, monkeypatch):
    x, asked = torch.ones(size), []
    call(x)

    def is_compiling():
        caller = sys._getframe(1).f_globals["__name__"]
        asked.extend([caller] if caller.startswith("quantal.") else [])
        return False

    monkeypatch.setattr(torch.compiler, "is_compiling", is_compiling)
    call(x)
    assert asked == ["quantal.torch._private_api"]


def test_the_import_leaves_torch_s_compiler_alone():
    """Loading it takes as long as loading torch."""
    code = "import sys, quantal.torch; print('torch._dynamo' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
