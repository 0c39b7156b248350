"""convert on dropout in a module's own code: found, converted where it can be, named where not."""

import copy
import math
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.functional import dropout as bare
from torch.utils.checkpoint import checkpoint

from quantal.sites import UnreachedWarning
from quantal.torch import convert, masks_on, revert, sites
from quantal.torch._reroute import Rerouting


class Mlp(nn.Module):
    def __init__(self, rate=0.5):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        return F.dropout(x, p=self.rate, training=self.training)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_drop = nn.Dropout(0.3)

    def forward(self, x):
        return F.scaled_dot_product_attention(
            x, x, x, dropout_p=self.attn_drop.p if self.training else 0.0
        )


class Many(nn.Module):
    """Calls by all their names, one of them with a rate that is known only when it runs."""

    rate = "0.2"

    def forward(self, x, rate=0.4):
        x = bare(x, 0.1, self.training)
        x = torch.nn.functional.dropout1d(x, float(self.rate), self.training)
        x = torch.dropout(x, 0.3, self.training)
        return helper(self.method(x), rate)

    def method(self, x):
        return F.dropout2d(x.unsqueeze(0), training=self.training).squeeze(0)


def helper(x, rate):
    return F.dropout3d(x.view(1, *x.shape, 1), rate).view(x.shape)


class Child(Many):
    def forward(self, x):
        return super().forward(x)


class Elsewhere(nn.Module):
    def __init__(self, attend=None):
        super().__init__()
        self.drop, self.attend = nn.Dropout(0.5), attend

    def forward(self, x):
        attend = self.attend
        return attend(self.drop(x), dropout_p=0.5)


class Held(nn.Module):
    """Holds the function that it calls."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x, dropout_p=0.5)


class OtherLaw(nn.Module):
    def forward(self, x):
        return F.alpha_dropout(x, 0.25, self.training)


class Innocent(nn.Module):
    """Looks like dropout, and is none."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Identity()
        self.lstm = nn.LSTM(2, 2, 1, dropout=0.0)

    def forward(self, x):
        x = F.dropout(self.dropout(x), 0.0)
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.0) + F.relu(x)


def values(module, x=None):
    return module(torch.ones(20, 50) if x is None else x).unique().numel()


def as_tuple(site):
    return site.name, site.kind, site.rate, site.alpha, site.unreached


def test_a_call_of_f_dropout():
    module = Mlp()
    assert [as_tuple(s) for s in sites(module)] == [("forward", "F.dropout", 0.5, None, "")]
    assert values(module) == 2
    assert convert(module, 1.0) is module
    assert [as_tuple(s) for s in sites(module)] == [("forward", "F.dropout", 0.5, 1.0, "")]
    assert isinstance(module, Mlp)
    assert repr(module) == "Mlp(alpha=1.0)"
    assert values(module) > 100
    assert values(module.eval()) == 1
    with masks_on(module):
        assert values(module) > 100
    module.train().rate = 1.0  # its own attribute is still the one to set
    assert values(module) == 1
    assert type(revert(module)) is Mlp
    assert vars(module).keys() == vars(Mlp()).keys()


def test_dropout_p_of_attention():
    module, x = Attention(), torch.eye(4).expand(2, 2, 4, 4)
    assert [(s.name, s.kind, s.rate) for s in sites(module)] == [
        ("forward", "F.scaled_dot_product_attention", 0.3),
        ("attn_drop", "Dropout", 0.3),
    ]
    expected = module.eval()(x)
    convert(module, lambda rate: 2 * rate)
    assert [s.alpha for s in sites(module)] == [0.6, 0.6]
    assert torch.equal(module(x), expected)
    torch.manual_seed(0)
    drawn = module.train()(x) / expected  # the values are unit vectors: these are coefficients
    assert drawn.unique().numel() > 40
    module.attn_drop.p = 0.0
    torch.testing.assert_close(module(x), expected)


@pytest.mark.parametrize("cls", [Many, Child])
def test_every_way_to_write_it(cls):
    found = {s.kind: s.rate for s in sites(cls())}
    assert math.isnan(found.pop("F.dropout3d"))
    assert found == {
        "bare": 0.1,
        "torch.nn.functional.dropout1d": 0.2,
        "torch.dropout": 0.3,
        "F.dropout2d": 0.5,
    }
    module = convert(cls(), 1.0)
    assert "nan" in repr(sites(module))
    # Some of the calls drop everything in one sample or another: not in all of many.
    torch.manual_seed(0)
    drawn = torch.stack([module(torch.ones(20, 50)) for _ in range(20)])
    assert drawn.unique().numel() > 1000


def test_a_function_for_alpha_needs_a_rate():
    class Local(nn.Module):
        def forward(self, x, rate=0.5):
            return F.dropout(x, rate, self.training)

    with pytest.raises(ValueError, match="alpha must be a number here"):
        convert(Local(), lambda rate: rate)
    assert values(convert(Local(), 1.0)) > 100
    with pytest.raises(ValueError, match="alpha must be a number here"):
        convert(Many(), lambda rate: rate)
    with pytest.warns(UnreachedWarning, match="alpha must be a number here"):
        convert(Many(), lambda rate: rate, strict=False)


@pytest.mark.parametrize("function", [F.dropout1d, F.dropout2d, F.dropout3d])
def test_channels_are_torchs(function):
    axes = int(function.__name__[-2])
    for shape in ((40, 30) + (3,) * axes, (1000,) + (3,) * axes)[: 1 if axes == 2 else 2]:
        with Rerouting({function.__name__: 1.0}):
            y = function(torch.ones(shape), 0.5)
        flat = y.flatten(y.ndim - axes)
        assert (flat == flat[..., :1]).all()
        assert flat[..., 0].unique().numel() > 100


def test_what_is_not_torchs_own_is_named():
    module = Elsewhere(math.hypot)  # whose code cannot be read
    message = r"forward \(attend\): dropout in the forward code, passed to a function"
    with pytest.raises(ValueError, match=message):
        convert(module, 1.0)
    assert type(module.drop) is nn.Dropout
    with pytest.warns(UnreachedWarning, match=message):
        convert(module, 1.0, strict=False)
    assert [s.alpha for s in sites(module)] == [None, 1.0]
    convert(revert(module), 1.0, exclude="forward")
    with pytest.raises(
        ValueError, match=r"forward \(self\.function\): dropout in the forward code"
    ):
        convert(Held(len), 1.0)
    assert not sites(Held(nn.Identity()))
    assert [s.kind for s in sites(Held(F.scaled_dot_product_attention))] == ["self.function"]
    with pytest.raises(ValueError, match=r"F\.alpha_dropout.* law other than dropout's"):
        convert(OtherLaw(), 1.0)


def test_no_false_alarm():
    assert not sites(Innocent())


def test_what_is_left_out_inside():
    """It stays as it is; where the two call one function they cannot be told apart."""

    class Both(Mlp):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return super().forward(self.drop(x))

    module = nn.Sequential(Both())
    with pytest.raises(ValueError, match=r"0\.forward .* 0\.drop within it is left out"):
        convert(module, 1.0, exclude="*.drop")
    assert type(module[0]) is Both
    convert(module, 1.0, exclude="*.forward")
    assert [s.alpha for s in sites(module)] == [None, 1.0]

    class Projected(Attention):
        def forward(self, x):
            return super().forward(x), self.attn_drop(x)

    module = nn.Sequential(Projected())
    convert(module, 1.0, exclude="*.attn_drop")
    assert [s.alpha for s in sites(module)] == [1.0, None]
    attended, dropped = module(torch.ones(10, 10, 10, 10))
    assert attended.unique().numel() > 100
    assert dropped.unique().numel() == 2


def test_one_inside_another_keeps_its_own_alpha():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Mlp()

        def forward(self, x):
            return self.inner(x), F.dropout(x, 0.5, self.training)

    module = convert(Outer(), 1.0, include="inner.forward")
    convert(module, math.inf)
    assert [(s.name, s.alpha) for s in sites(module)] == [
        ("forward", math.inf),
        ("inner.forward", 1.0),
    ]
    inner, outer = module(torch.ones(500))
    assert inner.unique().numel() > 100
    assert outer.unique().numel() == 2


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(again):
    module = again(convert(nn.Sequential(Mlp(), Attention()), 1.0))
    assert all(s.alpha == 1.0 for s in sites(module))
    assert values(module[0]) > 100
    assert [type(m).__qualname__ for m in revert(module)] == ["Mlp", "Attention"]


def test_gradient_checkpointing_draws_the_same_again():
    module, gradients = convert(nn.Sequential(nn.Linear(8, 8), Mlp()), 1.0), []
    for run in (module, lambda x: checkpoint(module, x, use_reentrant=False)):
        torch.manual_seed(0)
        x = torch.ones(4, 8)
        gradients.append(torch.autograd.grad(run(x).sum(), module[0].weight)[0])
    assert torch.equal(*gradients)


class Checkpointed(nn.Module):
    """Checkpoints its own call of F.dropout, in a method or in a function without a name."""

    def __init__(self, reentrant, method):
        super().__init__()
        self.linear, self.reentrant, self.method = nn.Linear(8, 8), reentrant, method

    def block(self, x):
        return F.dropout(self.linear(x), 0.5, self.training)

    def forward(self, x):
        function = self.block if self.method else lambda x: Checkpointed.block(self, x)
        if self.reentrant is None:
            return function(x)
        return checkpoint(function, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_within_a_forward(reentrant):
    gradients = []
    for each in (None, reentrant):
        torch.manual_seed(0)
        module = convert(Checkpointed(each, method=True), 1.0)
        module(torch.ones(16, 8, requires_grad=True)).sum().backward()
        gradients.append(module.linear.weight.grad)
    assert torch.equal(*gradients)
    # There, the second run would draw dropout: the gradient was wrong, and nobody said so.
    module = convert(Checkpointed(reentrant, method=False), 1.0)
    with pytest.raises(
        RuntimeError, match=r"F\.dropout in a function that torch\.utils\.checkpoint"
    ):
        module(torch.ones(16, 8, requires_grad=True))
    module.eval()(torch.ones(16, 8, requires_grad=True)).sum().backward()


def test_compiled():
    module = convert(nn.Sequential(Mlp(), nn.Unflatten(-1, (2, 5, 5)), Attention()), 1.0)
    compiled, x = torch.compile(module, fullgraph=True, backend="aot_eager"), torch.ones(20, 50)
    assert not torch.equal(compiled(x), compiled(x))
    module.eval()
    torch.testing.assert_close(compiled(x), module(x))
    compiled(x)


def test_a_thread_that_has_run_no_such_code_may_begin_with_a_graph():
    """What a thread knows must not look otherwise after the first call, or the graph is no good."""

    def begin():
        torch._dynamo.reset()
        module = convert(Mlp(), 1.0)
        compiled, x = torch.compile(module, backend="aot_eager"), torch.ones(20, 50)
        return [compiled(x) for _ in range(3)]

    with ThreadPoolExecutor(1) as pool:
        first, *others = pool.submit(begin).result()
    assert all(not torch.equal(first, other) for other in others)
