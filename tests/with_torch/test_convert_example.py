"""convert by running: places that no reading of source finds are swapped, or named."""

import asyncio
import functools
import random
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from quantal.sites import UnreachedWarning
from quantal.torch import QSD, convert, masks_on, revert, sites
from quantal.torch._native_masks import native_masks

X = torch.linspace(-1, 1, 64).view(8, 8)
TABLE = {"drop": F.dropout}


def undecorated(method):
    """A decorator without functools.wraps."""

    def run(*args):
        return method(*args)

    return run


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.options, self.layers = nn.Linear(8, 8), {"p": 0.4}, [nn.Dropout(0.4)]
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.hidden(self.drop(self.lin(x)))


class InKwargs(Base):
    def hidden(self, x):
        return F.dropout(x, **self.options | {"training": self.training})


class MadeInForward(Base):
    def hidden(self, x):
        return nn.Dropout(0.4).train(self.training)(x)


class InAList(Base):
    def hidden(self, x):
        return self.layers[0].train(self.training)(x)


class InATable(Base):
    def hidden(self, x):
        return TABLE["dr" + "op"](x, 0.4, self.training)


class Imported(Base):
    def hidden(self, x):
        from torch.nn.functional import dropout as other

        return functools.partial(other, p=0.4)(x, training=self.training)


class Closure(Base):
    def hidden(self, x):
        names = ["dropout"]
        return (lambda y: getattr(F, names[0])(y, 0.4, self.training))(x)


class Decorated(Base):
    @undecorated
    def hidden(self, x):
        return type(self).helper(x, self.training)

    @staticmethod
    def helper(x, training):
        return TABLE["drop"](x, 0.4, training)


class Operator(Base):
    def hidden(self, x):
        return torch.ops.aten.dropout(x, 0.4, self.training)


class Overload(Base):
    def hidden(self, x):
        return torch.ops.aten.feature_dropout.default(x, 0.4, self.training)


SILENT = [
    InKwargs, MadeInForward, InAList, InATable, Imported, Closure, Decorated, Operator, Overload,
]  # fmt: skip


@pytest.mark.parametrize("cls", SILENT)
@pytest.mark.parametrize("proved", [False, True])
def test_what_no_source_shows_is_swapped(cls, proved):
    model = cls()
    model.eval()
    expected = model(X)
    model.train()
    assert len(native_masks(lambda: model(X))) == 2
    convert(model, 1.0, example=X if proved else None)
    assert not native_masks(lambda: model(X))
    assert torch.equal(model.eval()(X), expected)
    revert(model.train())
    assert type(model) is cls
    assert len(native_masks(lambda: model(X))) == 2


def test_it_is_listed_once_it_ran():
    model = convert(MadeInForward(), 1.0)
    model(X)
    found = {(s.name, s.alpha) for s in sites(model)}
    assert found == {("forward", 1.0), ("drop", 1.0)}
    with masks_on(model.eval()):
        assert not torch.equal(model(X), model(X))
    assert {s.alpha for s in sites(revert(model))} == {None}


class EntryPoints(nn.Module):
    def __init__(self):
        super().__init__()
        self.child = InATable()
        self.register_forward_hook(lambda module, args, y: TABLE["drop"](y, 0.2))

    def forward(self, x):
        return self.child.hidden(x)

    def encode(self, x):
        return TABLE["drop"](x, 0.3)

    def training_step(self, x):
        return self.encode(self(x)).sum()


def test_other_entry_points():
    model = convert(EntryPoints(), 1.0)
    for run in (model.encode, model.training_step, model, model.forward, model.child):
        assert not native_masks(lambda run=run: run(X))
    model = EntryPoints()
    convert(model, 1.0, example=lambda: model.child.hidden(X))
    assert not native_masks(lambda: model.child.hidden(X))


class InSteps(Base):
    """Runs long after it was called: as a generator, and as a coroutine."""

    def forward(self, x):
        heard = yield TABLE["drop"](x, 0.4, self.training)
        try:
            yield TABLE["drop"](heard, 0.4, self.training)
        except KeyError:
            yield TABLE["drop"](x, 0.4, self.training)
        return "end"

    async def later(self, x):
        await asyncio.sleep(0)
        return TABLE["drop"](x, 0.4, self.training)

    def both(self, x):
        steps = self(x)
        found = [next(steps), steps.send(x), steps.throw(KeyError())]
        with pytest.raises(StopIteration, match="end"):
            next(steps)
        return [*found, asyncio.run(self.later(x))]


def test_generators_and_coroutines():
    model = InSteps()
    assert len(native_masks(lambda: InSteps.both(model, X))) == 4
    convert(model, 1.0)
    # From outside: a method of the model would run all of it with QSD.
    assert not native_masks(lambda: InSteps.both(model, X))
    steps = model(X)
    next(steps)
    assert native_masks(lambda: F.dropout(X))  # between two steps, code of others runs
    steps.close()
    assert all(torch.equal(y, X) for y in model.eval().both(X))


def test_only_what_is_chosen():
    model = nn.Sequential(MadeInForward(), MadeInForward())
    convert(model, 1.0, example=X, exclude="1.*")
    assert len(native_masks(lambda: model(X))) == 2
    assert [s.alpha for s in sites(model)] == [1.0, 1.0, None]
    assert [s.name for s in sites(model, example=X) if s.alpha is None] == ["1.drop", "1.forward"]


class StableDropout(nn.Module):
    def forward(self, x):
        return x * torch.empty_like(x).bernoulli_(0.75) / 0.75


class OwnMask(nn.Module):
    def forward(self, x):
        return x * (torch.rand(x.shape) > 0.25)


class Scripted(nn.Module):
    def forward(self, x):
        return scripted()(x)


@functools.cache
def scripted():
    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.dropout(x, 0.25, True)

    return torch.jit.script(run)


class Native(nn.Module):
    def forward(self, x):
        return torch.native_dropout(x, 0.25, self.training)[0]


class Hidden(nn.Module):
    def forward(self, x):
        return vars(torch)["native_" + "dropout"](x, 0.25, self.training)[0]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("cls", [StableDropout, OwnMask, Scripted, Hidden])
def test_masks_of_their_own_are_named(cls):
    model = nn.Sequential(nn.Dropout(0.5), cls())
    where = r"mask of its own in \w+\.forward, test_convert_example\.py:\d+"
    with pytest.raises(ValueError, match=rf"1(\.forward)? \({cls.__name__}\): it draws a {where}"):
        convert(model, 1.0, example=X)
    assert type(model[0]) is nn.Dropout
    assert [s.rate for s in sites(model, example=X) if s.unreached] == [0.25]
    with pytest.warns(UnreachedWarning, match=cls.__name__):
        convert(model, 1.0, example=X, strict=False)
    assert type(model[0]) is QSD
    convert(revert(model), 1.0, example=X, exclude="1*")


class Autograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rate):
        return x * torch.bernoulli(torch.full_like(x, 1 - rate)) / (1 - rate)


class ConsistentDropout(nn.Module):
    """Has its own derivative, as that of DeBERTa had."""

    def forward(self, x):
        return Autograd.apply(x, 0.25)


class DropBlock(nn.Module):
    def forward(self, x):
        return x * (torch.rand_like(x) > 0.25)


class CallsScripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.function = scripted()

    def forward(self, x):
        return self.function(x)


ITS_OWN = r"it draws a mask of its own in .*, test_convert_example\.py:\d+"


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (StableDropout, rf"1 \(StableDropout\): {ITS_OWN}"),
        (ConsistentDropout, rf"1 \(ConsistentDropout\): {ITS_OWN}"),
        (DropBlock, rf"1 \(DropBlock\): {ITS_OWN}"),
        (Native, r"1\.forward \(torch\.native_dropout\): .* returns its mask, too"),
        (CallsScripted, r"1\.forward \(self\.function\): scripted code cannot be changed"),
    ],
)
def test_masks_are_named_without_an_example(cls, words):
    model = nn.Sequential(nn.Dropout(0.5), cls())
    with pytest.raises(ValueError, match=words):
        convert(model, 1.0)
    assert type(model[0]) is nn.Dropout
    # Nobody is told twice: not in training, after the warning.
    with pytest.warns(UnreachedWarning, match=words):
        convert(model, 1.0, strict=False)
    model(X)


def test_masks_that_turn_up_in_training_are_noticed_once():
    class Sampled(nn.Module):
        def forward(self, x):
            x = x * torch.bernoulli(torch.ones(8, 1))  # one for each sample: stochastic depth
            return x * torch.distributions.Bernoulli(0.75).sample(x.shape)

    class AlphaHidden(Base):
        def hidden(self, x):
            return nn.AlphaDropout(0.25).train(self.training)(x)

    for cls, function in ((Sampled, "torch.bernoulli"), (AlphaHidden, "F.alpha_dropout")):
        model = convert(nn.Sequential(nn.Dropout(0.5), cls()), 1.0)
        model.eval()(X)
        words = rf"{function} draws a mask that is not QSD, in .*, test_convert_example\.py:\d+"
        with pytest.warns(UnreachedWarning, match=words) as noticed:
            model.train()(X)
        assert len(noticed) == 1
        model(X)  # warnings are errors here


def test_one_number_is_no_mask():
    class LayerDrop(Base):
        def hidden(self, x):
            return x if torch.rand([]) < 0.5 else 2 * x

    assert [s.name for s in sites(LayerDrop(), example=X)] == ["drop"]


def test_kernels_that_drop_inside():
    """As on GPUs: an operator with a rate of dropout among its arguments."""
    masks = native_masks(
        lambda: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *[torch.ones(1, 1, 4, 8)] * 3, dropout_p=0.0
        )
    )
    assert not masks
    from quantal.torch._private_api import rates_of_dropout

    flash = torch.ops.aten._scaled_dot_product_flash_attention.default
    assert rates_of_dropout(flash, (1, 2, 3, 0.1), {}) == [0.1]


class Everything(Base):
    """Changes all that a training pass can change."""

    def __init__(self):
        super().__init__()
        self.norm, self.steps, self.generator = nn.BatchNorm1d(8), 0, torch.Generator()
        self.own = QSD(0.5, 1.0, generator=torch.Generator())
        self.notes = []

    def hidden(self, x):
        self.steps += 1
        self.notes.append(self.steps)
        torch.rand(1, generator=self.generator)
        random.random()
        np.random.rand()  # noqa: NPY002
        return self.own(self.norm(x))


def state_of(model):
    values = [*model.state_dict().values(), *(p.grad for p in model.parameters())]
    return (
        [v.clone() for v in values],
        [torch.get_rng_state(), model.generator.get_state(), model.own.generator.get_state()],
        (random.getstate(), np.random.get_state()[1].tolist()),  # noqa: NPY002
        [(type(m), m.training, set(vars(m))) for m in model.modules()],
        (model.steps, list(model.notes)),
    )


@pytest.mark.parametrize("fails", [False, True])
def test_it_leaves_no_traces(fails):
    model = Everything()
    model(X).sum().backward()
    model.drop.eval()
    optimizer = torch.optim.Adam(model.parameters())
    before = state_of(model)

    def step(model):
        model(X).square().sum().backward()
        optimizer.step()
        if fails:
            raise RuntimeError("halfway")

    if fails:
        with pytest.raises(RuntimeError, match="halfway"):
            convert(model, 1.0, example=step)
    else:
        sites(model, example=step)
    torch.testing.assert_close(state_of(model)[:2], before[:2], rtol=0, atol=0)
    assert state_of(model)[2:] == before[2:]
    assert not optimizer.state


@pytest.mark.parametrize("example", [X, (X,), {"x": X}, lambda model: model(X)])
def test_kinds_of_examples(example):
    assert all(s.alpha == 1.0 for s in sites(convert(InATable(), 1.0, example=example)))


def test_a_pass_that_draws_nothing_proves_nothing():
    with pytest.raises(ValueError, match="example: expected a training pass, in which dropout"):
        convert(InATable(), 1.0, example=lambda model: model.lin(X))


def test_dropout_that_a_pass_does_not_reach():
    """It is the truth that it draws nothing, if its module runs."""

    class Fused(Base):
        def hidden(self, x, slow=False):
            return F.dropout(x, 0.4, self.training) if slow else x

        def forward(self, x):
            return self.hidden(self.lin(x))

    model = Fused()
    assert not native_masks(lambda: model(X))
    assert {s.alpha for s in sites(convert(model, 1.0, example=X), example=X)} == {1.0}
    with pytest.raises(ValueError, match="a pass that draws nothing"):
        sites(model, example=lambda model: model.eval()(X))


def test_lazy_modules_are_built():
    model = nn.Sequential(nn.LazyLinear(4), nn.Dropout(0.5))
    assert len(sites(convert(model, 1.0, example=X), example=X)) == 1
    assert model[0].weight.shape == (4, 8)


def test_alpha_by_the_rate_needs_an_example():
    model = convert(MadeInForward(), lambda rate: 10 * rate)
    with pytest.warns(UnreachedWarning, match=r"F\.dropout draws dropout, at a rate of 0\.4"):
        model(X)
    convert(revert(model), lambda rate: 10 * rate, example=X)
    assert {s.alpha for s in sites(model)} == {1.0, 4.0}


def test_a_mask_for_a_batch_of_one_is_a_mask():
    x = torch.ones(1, 4, 4)
    for draw in (
        lambda: x * (torch.rand(1, 1, 1) >= 0.25),
        lambda: x * torch.empty(1, 1, 1).bernoulli_(0.75),
    ):
        assert [mask.rate for mask in native_masks(draw)] == [0.25]
    for coin in (lambda: torch.rand(1) < 0.25, lambda: torch.rand(()) < 0.25):  # layers dropped
        assert not native_masks(coin)


class Threaded(Base):
    """Runs a child, and a function, in threads."""

    def __init__(self, function=False):
        super().__init__()
        self.child, self.function = InATable(), function

    def hidden(self, x):
        def run():
            found.append(TABLE["drop"](x, 0.3) if self.function else self.child.hidden(x))

        found = []
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return found[0]


def test_threads_are_watched():
    model = Threaded()
    assert len(native_masks(lambda: model(X))) == 2
    convert(model, 1.0, example=X)
    assert not native_masks(lambda: model(X))
    with pytest.raises(ValueError, match=r"of its own in Threaded\.hidden.*, test_convert_example"):
        convert(Threaded(function=True), 1.0, example=X)
    assert threading.Thread.run.__module__ == "threading"


class InBackward(Base):
    """Drops gradients."""

    def hidden(self, x):
        if self.training:
            x.register_hook(lambda gradient: TABLE["drop"](gradient, 0.3))
        return x


def test_backward_passes_are_watched():
    def step(model):
        model(X).square().sum().backward()

    assert len(native_masks(lambda: step(InBackward()))) == 2
    with pytest.raises(
        ValueError, match=r"of its own in InBackward\.hidden.*, test_convert_example"
    ):
        convert(InBackward(), 1.0, example=step)


def test_derivatives_and_checkpoints_are_not_counted_again():
    def step(drawn):
        x = X.clone().requires_grad_()
        y = torch.where(torch.rand(8, 1) < 0.5, x, 2 * x)  # its derivative looks like dropout
        run = lambda z: F.dropout(z, 0.3) if drawn else z  # noqa: E731 - one of two
        for reentrant in (False, True):
            y = torch.utils.checkpoint.checkpoint(run, y, use_reentrant=reentrant)
        y.square().sum().backward()

    assert [mask.rate for mask in native_masks(lambda: step(True))] == [0.3, 0.3]
    assert not native_masks(lambda: step(False))


@pytest.mark.parametrize(
    "activation", [lambda x: F.dropout(x, 0.3), functools.partial(torch.dropout, p=0.3, train=True)]
)
@pytest.mark.parametrize("proved", [False, True])
def test_code_that_torchs_own_modules_are_given(activation, proved):
    model = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 8, 0.1, activation, batch_first=True))
    convert(model, 1.0, example=X[None] if proved else None)
    assert not native_masks(lambda: model(X[None]))
    revert(model)
    assert type(model[0]) is nn.TransformerEncoderLayer
    assert len(native_masks(lambda: model(X[None]))) == 5


def test_statistics_of_other_shapes_are_put_back():
    """As those of an observer, which are empty at first."""

    class Observed(Base):
        def __init__(self):
            super().__init__()
            self.register_buffer("least", torch.empty(0))

        def hidden(self, x):
            self.least.resize_(8).copy_(x.detach().amin(0))
            return x

    model = Observed()
    convert(model, 1.0, example=X)
    assert model.least.shape == (0,)
    model(X)
    assert model.least.shape == (8,)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_masks_in_torchs_own_modules_are_not_taken_for_qsd():
    """Between the operators and the example, only code of torch's and quantal's runs."""
    model = nn.TransformerEncoderLayer(8, 2, 8, 0.1, scripted(), batch_first=True)
    for example in (X[None], lambda model: model(X[None])):
        with pytest.raises(
            ValueError, match=r"forward \(TransformerEncoderLayer\): it draws a mask"
        ):
            convert(model, 1.0, example=example)
