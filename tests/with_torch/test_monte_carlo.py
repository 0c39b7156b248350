"""masks_on and predict_mc: QSD alone draws, and all else is as it was."""

from collections import OrderedDict, namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from quantal import Dilution
from quantal.torch import QSD, convert, masks_on, predict_mc


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.drop = QSD(0.5, 1.0)
        self.native = nn.Dropout(0.5)
        self.lstm = nn.LSTM(4, 4, 2, dropout=0.5)

    def forward(self, x):
        return self.lstm(self.native(self.drop(self.norm(x))))[0]


def modes(model):
    return {name: module.training for name, module in model.named_modules()}


@pytest.mark.parametrize("training", [True, False])
def test_qsd_alone_is_on_and_modes_come_back(training):
    model = Net().train(training)
    model.native.train(not training)
    before = modes(model)
    with masks_on(model):
        assert [name for name, on in modes(model).items() if on] == ["drop"]
    assert modes(model) == before
    with masks_on(model, native=True):
        assert [name for name, on in modes(model).items() if on] == ["drop", "native", "lstm"]
    assert modes(model) == before
    with pytest.raises(RuntimeError, match="on purpose"), masks_on(model):
        raise RuntimeError("on purpose")
    assert modes(model) == before


def test_converted_modules_are_on():
    model = convert(Net(), 2.0).eval()
    x = torch.randn(5, 4)
    with masks_on(model):
        assert [name for name, on in modes(model).items() if on] == ["drop", "native", "lstm"]
        assert not torch.equal(model(x), model(x))
    assert torch.equal(model(x), model(x))


def test_native_dropout_in_code():
    class Code(nn.Module):
        def forward(self, x):
            return F.dropout(x, 0.5, self.training)

    model = Code().eval()
    with pytest.raises(ValueError, match=r"model: expected one with QSD; with native=True"):
        predict_mc(model, torch.ones(3), 2)
    assert predict_mc(model, torch.ones(100), 5, native=True).std.sum() > 0
    with pytest.raises(ValueError, match="model: expected one with QSD or dropout"):
        predict_mc(nn.Linear(2, 2), torch.ones(2), 2, native=True)


def test_statistics_of_batch_norm_are_left_alone():
    model = Net()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    predict_mc(model, torch.randn(5, 4), 3)
    after = dict(model.named_buffers())
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_mean_and_spread_are_those_of_the_draws():
    model, x = QSD(0.5, 1.0), torch.ones(7)
    torch.manual_seed(0)
    draws = torch.stack([model(x) for _ in range(20)])
    torch.manual_seed(0)
    mean, std = predict_mc(model, x, 20)
    torch.testing.assert_close(mean, draws.mean(0))
    torch.testing.assert_close(std, draws.std(0))


def test_they_approach_the_law():
    law, n = Dilution(0.5, 1.0), 400
    torch.manual_seed(1)
    mean, std = predict_mc(QSD(0.5, 1.0), torch.ones(1000), n)
    count = n * 1000
    assert abs(float(mean.mean()) - law.mean) < 5 * law.std / count**0.5
    # The error of a variance, by the fourth central moment.
    m = [law.moment(k) for k in range(5)]
    fourth = m[4] - 4 * m[3] * m[1] + 6 * m[2] * m[1] ** 2 - 3 * m[1] ** 4
    assert abs(float(std.square().mean()) - law.var) < 5 * (fourth / count) ** 0.5


def test_inputs_and_outputs_of_any_structure():
    Pair = namedtuple("Pair", "left right")

    class Structured(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = QSD(0.5, 1.0)

        def forward(self, a, b=None):
            y = self.drop(a)
            return OrderedDict(pair=Pair(y, [b]), top=y.argmax(), name="n", half=y.half())

    model, a, b = Structured(), torch.ones(4), torch.zeros(2)
    for x in ((a, b), [a, b], {"a": a, "b": b}):
        mean, std = predict_mc(model, x, 3)
        assert type(mean) is type(std) is OrderedDict
        assert isinstance(mean["pair"], Pair)
        assert torch.equal(mean["pair"].right[0], b)
        assert not std["pair"].right[0].any()
        assert mean["top"].dtype == torch.int64
        assert mean["name"] == "n"
        assert mean["half"].dtype == std["half"].dtype == torch.float16
    assert predict_mc(model, a, 3).mean["pair"].right == [None]


def test_no_graph_is_kept_and_the_mode_returns():
    model = nn.Sequential(nn.Linear(3, 3), QSD(0.5, 1.0))
    mean, std = predict_mc(model, torch.ones(3, requires_grad=True), 2)
    assert not mean.requires_grad
    assert not std.requires_grad
    assert model.training
    with pytest.raises(RuntimeError, match="shapes"):
        predict_mc(model, torch.ones(4), 2)
    assert model.training


def test_torchs_seed_repeats_them():
    model, x = QSD(0.5, 1.0), torch.ones(50)
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(predict_mc(model, x, 5).mean)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize(("n", "error"), [(1, ValueError), (2.0, TypeError), (True, TypeError)])
def test_a_wrong_n(n, error):
    with pytest.raises(error, match="n: expected an integer of at least 2"):
        predict_mc(QSD(0.5, 1.0), torch.ones(3), n)


def test_compiled():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), QSD(0.5, 1.0)).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x = torch.ones(5, 3)
    expected = compiled(x)
    assert predict_mc(compiled, x, 4).std.sum() > 0
    assert torch.equal(compiled(x), expected)
