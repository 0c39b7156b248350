"""convert on nn.LSTM, nn.GRU and nn.RNN: QSD between the layers, and nowhere else."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence

import quantal.torch._recurrent as recurrent
from quantal.torch import convert, dilute, revert, sites

CLASSES = [nn.LSTM, nn.GRU, nn.RNN]
OPTIONS = [
    {},
    {"bidirectional": True},
    {"batch_first": True, "bias": False},
    {"bidirectional": True, "batch_first": True},
]
# torch 2.13 on CPUs, whatever the caller does.
PROJECTION = "ignore:LSTM with projections is not supported with oneDNN:UserWarning"


def inputs(options):
    """Batched, unbatched, packed."""
    ragged = [torch.randn(n, 5) for n in (3, 6, 4)]
    return [torch.randn(3, 4, 5), torch.randn(4, 5), pack_sequence(ragged, enforce_sorted=False)]


def hidden(module, x):
    """A state to begin with."""
    directions = module.num_layers * (1 + module.bidirectional)
    batch = x.batch_sizes[0] if isinstance(x, PackedSequence) else x.shape[not module.batch_first]
    sizes = () if not isinstance(x, PackedSequence) and x.ndim == 2 else (batch,)
    states = [
        torch.randn(directions, *sizes, size)
        for size in (module.proj_size or module.hidden_size, module.hidden_size)
    ]
    return tuple(states) if isinstance(module, nn.LSTM) else states[0]


def leaves(result):
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if leaf is not None]


def tensors(result):
    output, state = result
    data = output.data if isinstance(output, PackedSequence) else output
    return [data, *leaves(state)]


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_evaluation_is_bit_identical(cls, options):
    module = cls(5, 6, 3, dropout=0.5, **options).eval()
    for x in inputs(options):
        for given in ((), (hidden(module, x),)):
            expected = tensors(module(x, *given))
            convert(module, 1.0)
            assert all(map(torch.equal, tensors(module(x, *given)), expected))
            revert(module)


@pytest.mark.filterwarnings(PROJECTION)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("options", [*OPTIONS, {"proj_size": 2}], ids=str)
def test_the_stack_is_torchs_stack(cls, options, monkeypatch):
    """With nothing drawn between its layers, training gives what torch gives without dropout."""
    if "proj_size" in options and cls is not nn.LSTM:
        return
    monkeypatch.setattr(recurrent, "dilute", lambda x, rate, alpha, training: x)
    module = cls(5, 6, 3, dropout=0.5, **options)
    for x in inputs(options):
        for given in ((), (hidden(module, x),)):
            with torch.no_grad():
                expected = tensors(module.eval()(x, *given))
            got = tensors(convert(module, 1.0).train()(x, *given))
            torch.testing.assert_close(got, expected)
            sum(g.sum() for g in got).backward()
            assert all(p.grad is not None for p in module.parameters())
            revert(module)


@pytest.mark.parametrize("cls", CLASSES)
def test_what_is_diluted(cls, monkeypatch):
    """The outputs of every layer but the last, once, by the rate and alpha asked for."""
    seen = []

    def spy(x, rate, alpha, training):
        seen.append((tuple(x.shape), rate, alpha, training))
        return dilute(x, rate, alpha, training=training)

    monkeypatch.setattr(recurrent, "dilute", spy)
    module = convert(cls(5, 6, 3, dropout=0.4, bidirectional=True), 2.0)
    output, _ = module(torch.randn(7, 2, 5))
    assert seen == [((7, 2, 12), 0.4, 2.0, True)] * 2
    assert (output != 0).all()  # nothing is dropped after the last layer
    module.dropout = 0.1  # torch's own attribute is still the one to set
    module(torch.randn(7, 2, 5))
    assert seen[-1][1] == 0.1
    assert revert(module).dropout == 0.1


def test_the_draw_is_qsds():
    """A second layer that copies its input shows the coefficients."""
    module = nn.RNN(1, 500, 2, nonlinearity="relu", dropout=0.5, bias=False)
    with torch.no_grad():
        for weight in module.parameters():
            weight.zero_()
        module.weight_ih_l0.fill_(1.0)
        module.weight_ih_l1.copy_(torch.eye(500))
    x = torch.ones(4, 1, 1)
    assert module(x)[0].unique().numel() == 2
    convert(module, 1.0)
    torch.manual_seed(0)
    shown = module(x)[0]
    torch.manual_seed(0)
    torch.testing.assert_close(shown, dilute(torch.ones(4, 1, 500), 0.5, 1.0))
    convert(revert(module), math.inf)
    assert set(module(x)[0].unique().tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("cls", CLASSES)
def test_it_is_still_the_same_module(cls, tmp_path):
    module = cls(5, 6, 2, dropout=0.5, bidirectional=True)
    keys, before = list(module.state_dict()), vars(module).copy()
    assert convert(module, 1.0) is module
    assert isinstance(module, cls)
    assert type(module).__name__ == cls.__name__
    assert "dropout=0.5" in repr(module)
    assert "alpha=1.0" in repr(module)
    assert list(module.state_dict()) == keys
    assert module.all_weights[0][0] is module.weight_ih_l0
    assert module._all_weights[0][0] == "weight_ih_l0"
    module.flatten_parameters()
    torch.save(module.state_dict(), tmp_path / "rnn.pt")
    native = cls(5, 6, 2, dropout=0.5, bidirectional=True)
    native.load_state_dict(torch.load(tmp_path / "rnn.pt"))
    x = torch.randn(4, 2, 5)
    assert all(map(torch.equal, tensors(native.eval()(x)), tensors(module.eval()(x))))
    revert(module)
    assert type(module) is cls
    assert vars(module).keys() == before.keys()


@pytest.mark.filterwarnings("ignore:dropout option adds dropout after all but last:UserWarning")
def test_without_an_effect_it_is_no_site():
    for module in (nn.LSTM(2, 2, 1, dropout=0.5), nn.GRU(2, 2, 3)):
        assert not sites(module)
        with pytest.raises(ValueError, match="no dropout to swap"):
            convert(module, 1.0)


# torch 2.13: where a graph breaks, as at any recurrent layer, the compiler looks at .grad itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_compiled():
    """The compiler leaves recurrent layers to eager code."""
    module = convert(nn.Sequential(nn.LSTM(5, 6, 2, dropout=0.5)), 1.0)
    compiled = torch.compile(lambda x: module(x)[0].sum(), backend="aot_eager")
    x = torch.randn(4, 2, 5)
    first = compiled(x)
    first.backward()
    assert compiled(x) != first
    module.eval()
    assert torch.equal(compiled(x), module(x)[0].sum())
