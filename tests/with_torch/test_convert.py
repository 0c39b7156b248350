"""convert and revert: layers of dropout, wherever they are in a model."""

import copy
import pickle

import pytest
import torch
from torch import nn

import quantal.torch
from quantal.sites import UnreachedWarning
from quantal.torch import QSD, QSD1d, QSD2d, QSD3d, convert, revert, sites

PAIRS = [(nn.Dropout, QSD), (nn.Dropout1d, QSD1d), (nn.Dropout2d, QSD2d), (nn.Dropout3d, QSD3d)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))
        self.maps = nn.ModuleList([nn.Dropout2d(0.2, inplace=True)])
        self.heads = nn.ModuleDict({"a": nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))})

    def forward(self, x):
        return self.heads["a"](self.stem(x))


def shape_of(model):
    """What revert must bring back: objects, classes and attributes."""
    return [(id(m), type(m), set(m.__dict__)) for m in model.modules()]


@pytest.mark.parametrize(("native", "layer"), PAIRS)
def test_the_model_itself_may_be_a_layer(native, layer):
    module = native(0.3, inplace=True)
    assert convert(module, 2.0) is module
    assert type(module) is layer
    assert (module.p, module.alpha, module.inplace) == (0.3, 2.0, True)
    assert repr(module) == f"{layer.__name__}(p=0.3, alpha=2.0, inplace=True)"
    assert revert(module) is module
    assert type(module) is native
    assert vars(module).keys() == vars(native()).keys()
    assert repr(module) == f"{native.__name__}(p=0.3, inplace=True)"


def test_everywhere_in_the_tree_with_each_rate():
    model = Net()
    before, keys = shape_of(model), list(model.state_dict())
    assert [(s.name, s.kind, s.rate, s.alpha) for s in sites(model)] == [
        ("stem.1", "Dropout", 0.1, None),
        ("maps.0", "Dropout2d", 0.2, None),
        ("heads.a.0", "Dropout", 0.5, None),
    ]
    assert convert(model, lambda rate: 10 * rate) is model
    assert [(s.name, s.kind, s.rate, s.alpha) for s in sites(model)] == [
        ("stem.1", "QSD", 0.1, 1.0),
        ("maps.0", "QSD2d", 0.2, 2.0),
        ("heads.a.0", "QSD", 0.5, 5.0),
    ]
    assert list(model.state_dict()) == keys
    revert(model)
    assert shape_of(model) == before


def test_training_draws_qsd_and_evaluation_is_untouched():
    model, x = Net().eval(), torch.randn(3, 4)
    expected = model(x)
    convert(model, 0.5)
    assert torch.equal(model(x), expected)
    torch.manual_seed(0)
    y = convert(nn.Dropout(0.5), 1.0)(torch.ones(1000))
    assert y.unique().numel() > 100  # dropout would have two values
    torch.manual_seed(0)
    assert torch.equal(QSD(0.5, 1.0)(torch.ones(1000)), y)


def test_include_and_exclude():
    assert [s.alpha for s in sites(convert(Net(), 1.0, include="stem.*"))] == [1.0, None, None]
    assert [s.alpha for s in sites(convert(Net(), 1.0, exclude=["stem.*", "heads*"]))] == [
        None, 1.0, None,
    ]  # fmt: skip
    model = convert(Net(), 1.0, include=lambda name, module: module.p > 0.15, exclude="maps.0")
    assert [s.alpha for s in sites(model)] == [None, None, 1.0]


def test_in_two_steps_with_two_alphas():
    model = convert(convert(Net(), 1.0, include="stem.*"), 2.0)
    assert [s.alpha for s in sites(model)] == [1.0, 2.0, 2.0]
    assert all(s.alpha is None for s in sites(revert(model)))


def test_nothing_to_swap():
    for model in (nn.Linear(2, 2), convert(Net(), 1.0), nn.Sequential(QSD(0.5, 1.0))):
        before = shape_of(model)
        with pytest.raises(ValueError, match="no dropout to swap"):
            convert(model, 3.0)
        with pytest.warns(UnreachedWarning, match="no dropout to swap"):
            convert(model, 3.0, strict=False)
        assert shape_of(model) == before


@pytest.mark.parametrize(
    "alpha", [0.0, -1.0, "1", None, lambda rate: 0.3 - rate, lambda rate: "no"]
)
def test_a_wrong_alpha_changes_nothing(alpha):
    model = Net()
    before = shape_of(model)
    with pytest.raises((TypeError, ValueError), match="alpha: expected a number above 0"):
        convert(model, alpha)
    assert shape_of(model) == before


def test_not_a_module():
    for function in (lambda m: convert(m, 1.0), sites):
        with pytest.raises(TypeError, match=r"model: expected a torch\.nn\.Module"):
            function(torch.relu)


@pytest.mark.parametrize("kind", [nn.AlphaDropout, nn.FeatureAlphaDropout])
def test_another_law_is_named(kind):
    model = nn.Sequential(nn.Dropout(0.1), kind(0.2))
    before = shape_of(model)
    with pytest.raises(ValueError, match=rf"1 \({kind.__name__}\): .* law other than dropout's"):
        convert(model, 1.0)
    assert shape_of(model) == before
    with pytest.warns(UnreachedWarning, match=kind.__name__):
        convert(model, 1.0, strict=False)
    assert [type(m) for m in model] == [QSD, kind]
    assert "out of reach" in repr(sites(model))
    assert type(convert(revert(model), 1.0, exclude="1")[0]) is QSD


def test_a_subclass_is_swapped_unless_its_forward_is_its_own():
    class Named(nn.Dropout):
        def describe(self):
            return f"drops {self.p}"

    class Twice(nn.Dropout):
        def forward(self, x):
            return 2 * super().forward(x)

    class Own(nn.Dropout):
        def forward(self, x):
            return x * torch.rand_like(x)

    model = convert(nn.Sequential(Named(0.5), Twice(0.5)), 1.0)
    assert isinstance(model[0], QSD)
    assert isinstance(model[0], Named)
    assert model[0].describe() == "drops 0.5"
    assert model[0](torch.ones(1000)).unique().numel() > 100
    assert isinstance(model[1], Twice)
    assert model[1](torch.ones(1000)).unique().numel() > 100
    assert [type(m) for m in revert(model)] == [Named, Twice]
    with pytest.raises(ValueError, match=r"\(model\) \(Own\): its forward is its own"):
        convert(Own(0.5), 1.0)


def test_a_shared_layer_stays_shared():
    drop = nn.Dropout(0.5)
    model = nn.Sequential(nn.Sequential(drop, nn.Linear(2, 2)), drop)
    model.also = [drop]  # out of torch's sight
    assert [s.name for s in sites(convert(model, 1.0))] == ["0.0"]
    assert type(drop) is QSD
    assert model[0][0] is model[1] is model.also[0] is drop
    revert(model)
    assert model[0][0] is model[1] is drop
    assert type(drop) is nn.Dropout


def test_a_layer_called_twice_draws_twice():
    model = nn.Dropout(0.5)
    convert(model, 1.0)
    assert not torch.equal(model(torch.ones(500)), model(torch.ones(500)))


def test_hooks_mode_and_attributes_stay():
    model, seen = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)), []
    model[0].eval()
    model[0].register_forward_hook(lambda *_: seen.append("after"))
    model[0].register_forward_pre_hook(lambda *_: seen.append("before"))
    model[0].note = "kept"
    for step in (lambda: convert(model, 1.0), lambda: revert(model)):
        step()
        seen.clear()
        model(torch.ones(3))
        assert seen == ["before", "after"]
        assert [m.training for m in model] == [False, True]
        assert model[0].note == "kept"


def test_revert_keeps_what_changed_meanwhile():
    model = convert(Net(), 1.0)
    model.stem[1].p = 0.7
    model.maps[0].eval()
    with torch.no_grad():
        model.stem[0].weight.fill_(3.0)
    revert(model)
    assert model.stem[1].p == 0.7
    assert not model.maps[0].training
    assert (model.stem[0].weight == 3).all()
    assert nn.Dropout.forward(model.stem[1].train(), torch.ones(4)).shape == (4,)


def test_revert_leaves_the_users_own_qsd():
    model = nn.Sequential(QSD(0.5, 3.0), nn.Dropout(0.5))
    convert(model, 1.0)
    assert [m.alpha for m in model] == [3.0, 1.0]
    revert(model)
    assert [type(m) for m in model] == [QSD, nn.Dropout]


@pytest.mark.parametrize("again", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_revert_too(again):
    model = again(convert(nn.Sequential(nn.Dropout(0.5), nn.LSTM(2, 2, 2, dropout=0.5)), 1.0))
    assert [s.alpha for s in sites(model)] == [1.0, 1.0]
    other = again(model)
    revert(model)
    assert [type(m) for m in model] == [nn.Dropout, nn.LSTM]
    assert [s.alpha for s in sites(other)] == [1.0, 1.0]
    assert vars(model[0]).keys() == vars(nn.Dropout()).keys()


def test_frozen_weights_stay_frozen():
    model = Net().requires_grad_(False)
    convert(model, 1.0)
    assert not any(p.requires_grad for p in model.parameters())


def test_checkpoints_load_both_ways(tmp_path):
    native, ported = Net(), convert(Net(), 1.0)
    for source, target in ((native, ported), (ported, native)):
        for p in source.parameters():
            nn.init.normal_(p)
        torch.save(source.state_dict(), tmp_path / "model.pt")
        target.load_state_dict(torch.load(tmp_path / "model.pt"), strict=True)
        x = torch.randn(3, 4)
        assert torch.equal(source.eval()(x), target.eval()(x))


# TorchScript is deprecated in torch 2.13, and some of its users' models are not yet.
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_scripted_modules_are_named():
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    message = r"\(Dropout\): scripted code cannot be changed: convert before torch\.jit\.script"
    for model, name in ((scripted, "1"), (nn.Sequential(scripted), r"0\.1")):
        with pytest.raises(ValueError, match=f"{name} {message}"):
            convert(model, 1.0)
    assert not sites(torch.jit.script(nn.Linear(2, 2)))


def test_tables_go_where_the_weights_are():
    model = convert(nn.Sequential(nn.Linear(2, 2, device="meta"), nn.Dropout(0.5)), 1.0)
    assert model(torch.ones(3, 2, device="meta")).is_meta
    model.to_empty(device="cpu")
    assert model[1](torch.ones(2)).shape == (2,)


def test_compiled_before_or_after():
    x = torch.ones(64, 4)
    before = torch.compile(Net(), backend="aot_eager", fullgraph=True)
    before(x)
    convert(before, 1.0)
    after = torch.compile(convert(Net(), 1.0), backend="aot_eager", fullgraph=True)
    for model in (before, after):
        assert [s.kind for s in sites(model)] == ["QSD", "QSD2d", "QSD"]
        assert not torch.equal(model(x), model(x))
        model(x).sum().backward()
    dropped = torch.compile(nn.Sequential(nn.Dropout(0.5)), backend="aot_eager")
    assert dropped(torch.ones(1000)).unique().numel() == 2
    assert convert(dropped, 1.0)(torch.ones(1000)).unique().numel() > 100
    assert revert(dropped)(torch.ones(1000)).unique().numel() == 2


def test_the_mean_gain_is_that_of_the_layer_s_own_law():
    layer = quantal.torch.QSD(0.5, 1.0, unit_mean=True)
    assert [site.mean_gain for site in quantal.torch.sites(layer)] == [1]
