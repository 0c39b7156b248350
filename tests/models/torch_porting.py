"""What must hold for every torch model of another library that is converted."""

import copy
import math

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from quantal.torch import convert, predict_mc, revert, sites


class NativeDraws(TorchDispatchMode):
    """Counts what torch's own dropout draws with, however it was called."""

    def __enter__(self):
        self.count = 0
        return super().__enter__()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += "bernoulli" in str(func) or "native_dropout" in str(func)
        return func(*args, **(kwargs or {}))


def anatomy(model):
    """Objects, classes, attributes and modes."""
    by_compile = {"_is_torch_compile"}  # which torch.compile leaves behind
    return [(id(m), type(m), m.__dict__.keys() - by_compile, m.training) for m in model.modules()]


def tensors(output):
    return [leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)]


def evaluate(model, x):
    modes = {module: module.training for module in model.modules()}
    torch.manual_seed(0)  # for those that draw in evaluation as well
    with torch.no_grad():
        output = tensors(model.eval()(**x))
    for module, mode in modes.items():
        module.training = mode
    return output


def same(first, second):
    return len(first) == len(second) and all(map(torch.equal, first, second))


def train(model, run, x, loss, steps=4):
    """Take some steps; return the loss in evaluation before and after them."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    before = loss(model.eval()(**x)).item()
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss(run(**x)).backward()
        optimizer.step()
    after = loss(model.eval()(**x)).item()
    model.train()
    return before, after


def check(model, x, loss, tmp_path, *, learns=True, fullgraph=True, backend="aot_eager"):
    """Port a model, with keyword inputs, and back; ``learns``: a few steps must lower its loss."""
    alpha = 0.5
    model.train()
    with NativeDraws() as draws:
        model(**x)
    assert draws.count > 0
    native, before, expected = copy.deepcopy(model), anatomy(model), evaluate(model, x)

    rates = [(site.name, site.rate) for site in sites(model)]
    assert convert(model, alpha) is model
    ported = sites(model)
    assert all(site.alpha == alpha and not site.unreached for site in ported), ported
    assert [(site.name, site.rate) for site in ported] == rates
    assert same(evaluate(model, x), expected)
    with NativeDraws() as draws:
        first, second = tensors(model(**x)), tensors(model(**x))
    assert draws.count == 0
    assert not same(first, second)

    mean, std = predict_mc(model, x, 3)
    assert type(mean) is type(std) is type(native(**x))
    assert sum(part.sum() for part in tensors(std) if part.is_floating_point()) > 0

    # Checkpoints go both ways, the second one with trained weights.
    file = tmp_path / "model.pt"
    torch.save(native.state_dict(), file)
    model.load_state_dict(torch.load(file), strict=True)
    for run in (model, torch.compile(model, fullgraph=fullgraph, backend=backend)):
        start, end = train(model, run, x, loss)
        assert math.isfinite(end)
        assert end < start if learns else end != start
    torch.save(model.state_dict(), file)
    native.load_state_dict(torch.load(file), strict=True)
    trained = evaluate(model, x)
    assert same(evaluate(native, x), trained)

    for again in (copy.deepcopy(model), model):
        revert(again)
        assert same(evaluate(again, x), trained)
        assert [part[1:] for part in anatomy(again)] == [part[1:] for part in before]
    assert anatomy(model) == before
    assert [(site.name, site.rate, site.alpha) for site in sites(model)] == [
        (name, rate, None) for name, rate in rates
    ]
