"""convert beside tools that change a module's class, or hide its forward."""

import abc
import copy
import functools
import itertools
import pickle
import typing
from types import MethodType, SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm

from quantal.sites import UnreachedWarning
from quantal.torch import QSD, convert, revert, sites
from quantal.torch._native_masks import native_masks

X = torch.linspace(-1, 1, 64).view(8, 8)


class Block(nn.Module):
    def __init__(self, attention=""):
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.eye(8)), nn.Dropout(0.2)
        if attention:
            self.config = SimpleNamespace(_attn_implementation=attention)

    def forward(self, x):
        return F.dropout(self.drop(x @ self.weight), 0.3, self.training)


class Scale(nn.Module):
    def forward(self, x):
        return 2 * x


def draws(model):
    return len(native_masks(lambda: model(X)))


def in_partial(module):
    """As accelerate's hooks do it."""
    module._old_forward = module.forward

    def new_forward(module, *args):
        return module._old_forward(*args)

    module.forward = functools.update_wrapper(
        functools.partial(new_forward, module), module.forward
    )


def in_closure(module):
    """As accelerate's ``prepare`` does it."""
    old = module.forward

    @functools.wraps(old)
    def forward(self, *args):
        return old(*args)

    module.forward = MethodType(forward, module)


@pytest.mark.parametrize("hide", [in_partial, in_closure])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_forward_of_the_instance(hide, when):
    model = nn.Sequential(Block(), nn.Dropout(0.5))
    expected = model.eval()(X)
    model.train()
    hooked = [module for module in model.modules() if module is not model]
    if when == "before":
        for module in hooked:
            hide(module)
    convert(model, lambda rate: 10 * rate)
    if when == "after":
        for module in hooked:
            hide(module)
    assert {(s.rate, s.alpha) for s in sites(model)} == {(0.3, 3.0), (0.2, 2.0), (0.5, 5.0)}
    assert draws(model) == 0
    assert torch.equal(model.eval()(X), expected)
    revert(model.train())
    assert draws(model) == 3
    assert torch.equal(model.eval()(X), expected)


TOOLS = {
    "spectral_norm": lambda m: spectral_norm(m, "weight"),
    "parametrization": lambda m: parametrize.register_parametrization(m, "weight", Scale()),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("order", list(itertools.permutations(["tool", "convert"])))
@pytest.mark.parametrize("first", ["revert", "remove"])
def test_parametrizations(tool, order, first):
    model = nn.Sequential(Block())
    steps = {"tool": lambda: TOOLS[tool](model[0]), "convert": lambda: convert(model, 1.0)}
    for name in order:
        steps[name]()
    assert draws(model) == 0
    assert "parametrizations.weight.original" in model[0].state_dict()
    ends = {
        "revert": lambda: revert(model),
        "remove": lambda: parametrize.remove_parametrizations(model[0], "weight"),
    }
    ends[first]()
    if first == "revert":
        assert draws(model) == 2
        assert parametrize.is_parametrized(model[0])
        parametrize.remove_parametrizations(model[0], "weight")
    else:
        assert draws(model) == 0
        revert(model)
    assert type(model[0]) is Block
    assert draws(model) == 2


@pytest.fixture
def mesh(tmp_path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    yield torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize("order", list(itertools.permutations(["shard", "convert"])))
@pytest.mark.parametrize("proved", [False, True])
def test_fully_shard(order, proved, mesh):
    from torch.distributed.fsdp import FSDPModule, fully_shard

    model = nn.Sequential(Block(), nn.Dropout(0.5))

    def shard():
        for module in (*model, model):
            fully_shard(module, mesh=mesh)

    steps = {
        "shard": shard,
        "convert": lambda: convert(model, 1.0, example=X if proved else None),
    }
    for name in order:
        steps[name]()
    assert all(isinstance(module, FSDPModule) for module in (*model, model))
    assert {s.alpha for s in sites(model)} == {1.0}
    assert draws(model) == 0
    model(X).sum().backward()
    revert(model)
    assert all(isinstance(module, FSDPModule) for module in (*model, model))
    assert isinstance(model[0], Block)
    assert draws(model) == 3
    model(X).sum().backward()


class Scheduled(nn.Dropout):
    step = 1

    @property
    def p(self):
        return 0.1 * self.step

    @p.setter
    def p(self, value):
        pass


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_rate_that_is_a_property(again):
    model = nn.Sequential(Scheduled(), nn.Identity())
    convert(model, 1.0)
    model = again(model)
    assert isinstance(model[0], Scheduled)
    model[0].step = 5
    assert [(s.rate, s.alpha) for s in sites(model)] == [(0.5, 1.0)]
    dropped = (model(torch.ones(4000)) == 0).float().mean()
    assert 0.4 < dropped < 0.6
    assert draws(model) == 0
    assert type(revert(model)[0]) is Scheduled


class Named(nn.Dropout):
    def describe(self):
        return f"drops {self.p}"


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_subclass_keeps_its_methods_in_copies(again):
    model = again(convert(nn.Sequential(Named(0.5)), 1.0))
    assert isinstance(model[0], QSD)
    assert model[0].describe() == "drops 0.5"
    assert draws(model) == 0
    assert type(revert(model)[0]) is Named


def test_a_failure_halfway_leaves_the_model_as_it_was(monkeypatch):
    import quantal.torch._change as change

    model = nn.Sequential(Block(), nn.Dropout(0.5), nn.LSTM(8, 8, 2, dropout=0.5))
    before = [(type(m), dict(vars(m))) for m in model.modules()]
    reroute = change.reroute

    def failing(module, *args):
        if isinstance(module, nn.LSTM):
            raise RuntimeError("halfway")
        reroute(module, *args)

    monkeypatch.setattr(change, "reroute", failing)
    with pytest.raises(RuntimeError, match="halfway"):
        convert(model, 1.0)
    assert [(type(m), dict(vars(m))) for m in model.modules()] == before


# --- what changes after convert ------------------------------------------------------------------


def test_other_attention_is_noticed_once():
    model = convert(nn.Sequential(Block("sdpa")), 1.0)
    model(X)
    model[0].config._attn_implementation = "eager"
    with pytest.warns(UnreachedWarning, match="its attention is 'eager', and was 'sdpa'"):
        model(X)
    model(X)  # warnings are errors here


def test_later_layers_are_noticed_once():
    model = convert(nn.Sequential(Block()), 1.0)
    model[0].adapter = nn.Sequential(nn.Linear(8, 8))
    model(X)  # nothing that drops units
    model[0].lora_dropout = nn.Dropout(0.5)
    model.eval()(X)
    with pytest.warns(UnreachedWarning, match=r"lora_dropout \(Dropout\)"):
        model.train()(X)
    model(X)
    convert(model, 1.0)
    assert {s.alpha for s in sites(model)} == {1.0}


# --- graphs --------------------------------------------------------------------------------------


def test_graph_modules():
    traced = torch.fx.symbolic_trace(Block().train())
    expected = draws(traced)
    assert expected == 2
    convert(traced, 1.0)
    assert draws(traced) == 0
    for again in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert {s.alpha for s in sites(again)} == {1.0}
        assert draws(again) == 0
    traced.recompile()
    assert draws(traced) == 0
    revert(traced)
    assert draws(traced) == expected
    traced.recompile()
    assert draws(traced) == expected


def test_traced_after_convert():
    model = convert(Block(), 1.0).eval()
    expected = model(X)
    traced = torch.fx.symbolic_trace(model)
    assert torch.equal(traced(X), expected)
    assert torch.equal(torch.export.export(model, (X,)).module()(X), expected)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_torchs_own_modules_stay_leaves_of_a_trace(mode):
    class Attending(Block):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, dropout=0.5)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    model = getattr(convert(nn.Sequential(Attending()), 1.0), mode)()
    traced = torch.fx.symbolic_trace(model)
    assert [n.target for n in traced.graph.nodes if n.op == "call_module"] == ["0.attention"]
    assert draws(traced) == 0
    if mode == "eval":
        assert torch.equal(traced(X), model(X))


def test_exported_in_training():
    """What an exported program drops is an operator in its graph: rerouted, too."""
    exported = torch.export.export(Block().train(), (X,)).module()
    assert draws(exported) == 2
    convert(exported, 1.0, example=X)
    assert draws(exported) == 0
    assert draws(revert(exported)) == 2


class Function:
    def __call__(self, x):
        return F.dropout(x, 0.3)


class Methods:
    @classmethod
    def of_class(cls, x):
        return F.dropout(x, 0.3)

    def partial(self, rate, x):
        return F.dropout(x, rate)


@pytest.mark.parametrize(
    "forward",
    [
        staticmethod(lambda x: F.dropout(x, 0.3)),
        vars(Methods)["of_class"],
        functools.partialmethod(Methods.partial, 0.3),
        functools.partial(F.dropout, p=0.3),
        Function(),
    ],
    ids=lambda forward: type(forward).__name__,
)
@pytest.mark.parametrize("proved", [False, True])
def test_a_forward_that_is_no_function(forward, proved):
    own = type("Own", (nn.Module,), {"forward": forward})
    model = nn.Sequential(nn.Dropout(0.5), own())
    assert draws(model) == 2
    convert(model, 1.0, example=X if proved else None)
    assert draws(model) == 0
    revert(model)
    assert type(model[1]) is own
    assert draws(model) == 2


class Abstract(abc.ABC, nn.Module):
    """The first base has no ``__dict__``, which decides how Python lays out the objects."""

    def __init__(self):
        super().__init__()
        self.weight, self.drop, self.other = nn.Parameter(X), Generic(0.2), Concrete(0.1)

    def forward(self, x):
        return F.dropout(self.other(self.drop(x @ self.weight)), 0.3, self.training)

    def extra_repr(self):
        return "own"


class Generic(typing.Generic[typing.TypeVar("T")], nn.Dropout):
    pass


class Concrete(abc.ABC, nn.Dropout):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "again", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
def test_a_first_base_without_a_dict(again):
    model = Abstract()
    expected = model.eval()(X)
    model.train()
    assert {s.rate for s in sites(model)} == {0.1, 0.2, 0.3}
    convert(model, lambda rate: 10 * rate)
    assert {s.alpha for s in sites(model)} == {1.0, 2.0, 3.0}
    model = again(model)
    assert repr(model).startswith("Abstract(\n  own, alpha=3.0\n")
    assert draws(model) == 0
    assert torch.equal(model.eval()(X), expected)
    revert(model.train())
    assert [type(m) for m in model.modules()] == [Abstract, Generic, Concrete]
    assert draws(model) == 3


class Registered(nn.Module):
    """Lists its subclasses, which must have a name."""

    known: typing.ClassVar = {}

    def __init_subclass__(cls, *, key, **kwargs):
        super().__init_subclass__(**kwargs)
        assert key not in Registered.known
        Registered.known[key] = cls


class Listed:
    known: typing.ClassVar = []

    def __init_subclass__(cls):
        Listed.known.append(cls)


class ListedDropout(Listed, nn.Dropout):
    pass


class Entry(Registered, key="entry"):
    def __init__(self):
        super().__init__()
        self.drop = ListedDropout(0.2)

    def forward(self, x):
        return F.dropout(self.drop(x), 0.3, self.training)


def test_registries_of_classes_are_not_told():
    model = convert(Entry(), 1.0)
    assert draws(model) == 0
    assert isinstance(model.drop, QSD)
    revert(model)
    assert Registered.known == {"entry": Entry}
    assert Listed.known == [ListedDropout]
    later = type("Later", (Entry,), {}, key="later")
    assert Registered.known["later"] is later


class Frozen(Block):
    def __setattr__(self, name, value):
        if "drop" in getattr(self, "_modules", ()) and name != "training":
            raise AttributeError(f"{name} is frozen")
        super().__setattr__(name, value)


class FrozenDropout(nn.Dropout):
    def __setattr__(self, name, value):
        if "p" in vars(self) and name not in ("training", "inplace"):
            raise AttributeError(f"{name} is frozen")
        super().__setattr__(name, value)


def test_modules_that_let_nobody_set_attributes():
    model = nn.Sequential(Frozen(), FrozenDropout(0.5))
    before = [(type(m), set(vars(m))) for m in model.modules()]
    assert len(sites(model, example=X)) == 3
    convert(model, 1.0)
    assert draws(model) == 0
    revert(model)
    assert [(type(m), set(vars(m))) for m in model.modules()] == before
    assert draws(model) == 3
