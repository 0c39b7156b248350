"""What an example finds: masks however they are made, and no randomness that is none."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from quantal.torch import sites
from quantal.torch._native_masks import native_masks

X = torch.linspace(-1, 1, 128).view(8, 16)
RATE = 0.3


def into(x, index, value):
    x[index] = value
    return x


def in_rows(mask):
    for row in mask:
        row[torch.rand(16) < RATE] = 0
    return mask


def gaussian_dropout(x):
    return x * (1 + torch.randn_like(x))


class OwnGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand_like(x) > RATE
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


def zoneout(x, mask):
    return mask * x + (1 - mask) * x.tanh()


def array(x):
    return torch.from_numpy(x.astype(np.float32))


class Everything(nn.Module):
    """A model with one function in the middle, and what these need."""

    def __init__(self, hidden):
        super().__init__()
        self.lin, self.drop, self.embedding = (
            nn.Linear(16, 16),
            nn.Dropout(0.1),
            nn.Embedding(20, 16),
        )
        self.own = torch.Generator(), np.random.default_rng(0)
        self.chances = nn.Parameter(torch.linspace(0.5, 1, 16))
        self.register_buffer("keep", torch.full((16,), 1 - RATE))
        self.hidden = hidden

    def forward(self, x):
        return self.hidden(self, self.drop(self.lin(x)))


# Each with the rate that is known of it, if any.
MASKS = {
    "numpy": (None, lambda m, x: x * array(np.random.rand(*x.shape) > RATE)),  # noqa: NPY002
    "numpy's generators": (None, lambda m, x: x * array(m.own[1].binomial(1, 0.7, x.shape)) / 0.7),
    "numpy, filled": (None, lambda m, x: x.masked_fill(torch.tensor(np.random.rand(16) < RATE), 0)),  # noqa: NPY002
    "numpy, places": (None, lambda m, x: into(x.clone(), (slice(None), torch.as_tensor(m.own[1].permutation(16)[:5])), 0)),
    "python": (None, lambda m, x: x * torch.tensor([float(random.random() > RATE) for _ in range(16)])),
    "randint": (None, lambda m, x: x * torch.randint(0, 2, x.shape)),
    "randint, compared": (None, lambda m, x: x * (torch.randint(0, 10, x.shape) > 2)),
    "random_": (None, lambda m, x: x * torch.empty_like(x).random_(2)),
    "randperm": (None, lambda m, x: x * (torch.randperm(16) < 12)),
    "randperm, places": (None, lambda m, x: into(x.clone(), (slice(None), torch.randperm(16)[:4]), 0)),
    "randperm, of ones": (None, lambda m, x: x * into(torch.ones(16), torch.randperm(16)[:4], 0)),
    "index_fill": (None, lambda m, x: x.index_fill(1, torch.randperm(16)[:4], 0)),
    "normal": (None, lambda m, x: x * (torch.randn_like(x) > -0.5)),
    "normal, where": (None, lambda m, x: torch.where(torch.randn(x.shape) < -0.5, torch.zeros_like(x), x)),
    "where": (RATE, lambda m, x: torch.where(torch.rand(x.shape) < RATE, 0.0, x)),
    "setitem": (RATE, lambda m, x: into(x.clone(), torch.rand(x.shape) < RATE, 0)),
    "rows of ones": (RATE, lambda m, x: x * in_rows(torch.ones(8, 16))),
    "generator": (RATE, lambda m, x: x * torch.empty_like(x).bernoulli_(1 - RATE, generator=m.own[0])),
    "distribution": (RATE, lambda m, x: x * torch.distributions.Bernoulli(1 - RATE).sample(x.shape)),
    "binomial": (None, lambda m, x: x * torch.distributions.Binomial(1, torch.tensor(0.7)).sample(x.shape)),
    "binomial, a few": (None, lambda m, x: x * torch.binomial(torch.ones(8, 1), torch.full((8, 1), 0.7))),
    "floor": (None, lambda m, x: x * (torch.rand(x.shape) + 0.7).floor()),
    "ceil": (None, lambda m, x: x * torch.empty(x.shape).uniform_(-RATE, 0.7).ceil()),
    "a rate in a buffer": (RATE, lambda m, x: x * (torch.rand_like(x) < m.keep)),
    "learned rates": (None, lambda m, x: x * torch.bernoulli(m.chances.expand_as(x))),
    "addcmul": (RATE, lambda m, x: torch.addcmul(x, x, (torch.rand_like(x) > RATE).float())),
    "einsum": (RATE, lambda m, x: torch.einsum("bi,i->bi", x, (torch.rand(16) > RATE).float())),
    "a diagonal": (RATE, lambda m, x: x @ torch.diag((torch.rand(16) > RATE).float())),
    "zoneout": (RATE, lambda m, x: zoneout(x, (torch.rand_like(x) > RATE).float())),
    "zoneout, where": (RATE, lambda m, x: torch.where(torch.rand_like(x) > RATE, x, x.tanh())),
    "zoneout, lerp": (RATE, lambda m, x: torch.lerp(x, x.tanh(), (torch.rand_like(x) > RATE).float())),
    "locked": (RATE, lambda m, x: x * (x.new_empty(1, 16).bernoulli_(1 - RATE) / 0.7).expand_as(x)),
    "weights": (RATE, lambda m, x: F.linear(x, m.lin.weight * torch.bernoulli(torch.full((16, 16), 1 - RATE)))),
    "by word": (RATE, lambda m, x: x * torch.empty(16).bernoulli_(1 - RATE)[m.embedding.weight.argmax(0) % 16]),
    "paths": (RATE, lambda m, x: x * x.new_empty(8, 1).bernoulli_(1 - RATE)),
    "alpha": (RATE, lambda m, x: torch.where(torch.rand_like(x) < RATE, -1.758, x)),
    "filled ones": (RATE, lambda m, x: x * torch.ones_like(x).masked_fill_(torch.rand_like(x) < RATE, 0)),
    "and padding": (RATE, lambda m, x: x * ((torch.rand_like(x) > RATE) & (x > -10))),
    "own gradient": (RATE, lambda m, x: OwnGradient.apply(x)),
    "by name": (None, lambda m, x: gaussian_dropout(x)),
}  # fmt: skip


def autoencoder(x):
    """Which tokens are left out is found by sorting; the cost is that of these."""
    order = torch.rand(x.shape).argsort(1).argsort(1)
    return x.square() * (into(torch.ones(8, 16), (slice(None), slice(4)), 0).gather(1, order))


def other_words(m):
    words = torch.where(torch.rand(8) < 0.5, 15, m.embedding.weight.argmax(1)[:8])
    return m.embedding(words) * (words != 3)[:, None]


def cutout(x):
    first = random.randrange(8)
    return x * into(torch.ones(8, 16), slice(first, first + 2), 0)


def diffused(x):
    steps = torch.randint(0, 1000, (2,))[:, None].float()
    return x + torch.sin(steps * torch.arange(16).float()).mean(0)


NONE = {
    "noise": lambda m, x: x + torch.randn_like(x),
    "reparameterisation": lambda m, x: x + x.exp() * torch.randn_like(x),
    "normal": lambda m, x: torch.normal(x, x.abs()),
    "gumbel": lambda m, x: x * F.gumbel_softmax(x, hard=True),
    "jitter": lambda m, x: x * torch.empty_like(x).uniform_(0.9, 1.1),
    "router": lambda m, x: x * torch.where((x[:, :1] > 9) | (torch.rand(8, 1) > 0.75), 1.0, 0.3333),
    "order": lambda m, x: x[torch.randperm(8)],
    "numpy's order": lambda m, x: x[torch.from_numpy(m.own[1].permutation(8))],
    "numpy's noise": lambda m, x: x + array(m.own[1].normal(size=x.shape)),
    "numpy's constants": lambda m, x: x * array(np.tril(np.ones((8, 16)))),
    "autoencoder": lambda m, x: autoencoder(x),
    "flips": lambda m, x: torch.where(torch.rand(8, 1) < 0.5, x.flip(-1), x),
    "labels": lambda m, x: x + m.embedding(torch.where(torch.rand(8) < 0.5, 16, torch.arange(8))),
    "no condition": lambda m, x: torch.where(torch.rand(8, 1) < 0.5, m.embedding.weight[0], x),
    "signs": lambda m, x: x * (torch.randint(0, 2, x.shape) * 2 - 1),
    "samples": lambda m, x: m.embedding(torch.multinomial(x.softmax(-1), 1)[:, 0]),
    "boltzmann": lambda m, x: m.lin(torch.bernoulli(torch.sigmoid(x))),
    "steps": lambda m, x: diffused(x),
    "a layer": lambda m, x: x * (torch.rand(1) < 0.5),
    "mixture": lambda m, x: torch.lerp(x, x[torch.randperm(8)], torch.rand(8, 1)),
    "rrelu": lambda m, x: F.rrelu(x, training=True) * x,
    "other words": lambda m, x: other_words(m),
    "latent": lambda m, x: (lambda z: m.lin(z * (z > 0)))(torch.randn(8, 16)),
    "rounding": lambda m, x: torch.floor(x * 4 + torch.rand_like(x)) / 4,
    "cutout": lambda m, x: cutout(x),
}  # fmt: skip


def named(hidden, example=X):
    torch.manual_seed(0)
    random.seed(0)
    return [site.rate for site in sites(Everything(hidden), example=example) if site.unreached]


@pytest.mark.parametrize("kind", MASKS)
def test_a_mask_is_named(kind):
    rate, hidden = MASKS[kind]
    assert named(hidden) == [pytest.approx(rate or float("nan"), nan_ok=True)]


def step(model):
    """Also the input is random here, and no mask."""
    y = model(torch.randn(8, 16))
    (y * (y > 0)).sum().backward()


@pytest.mark.parametrize("example", [X, step], ids=["input", "step"])
@pytest.mark.parametrize("kind", NONE)
def test_other_randomness_is_not(kind, example):
    assert not named(NONE[kind], example)


def test_words_that_a_step_draws_are_no_mask():
    def padded(m, x):
        return m.embedding(x) * (x != 3)[..., None]

    class Words(Everything):
        def forward(self, x):
            return self.drop(self.hidden(self, x))

    def step(model):
        model(torch.randint(0, 20, (4, 8))).sum().backward()

    assert not [site for site in sites(Words(padded), example=step) if site.unreached]


def test_a_mask_that_is_drawn_once_is_found_once():
    def twice(x):
        mask = torch.rand_like(x) > 0.25
        return (x * mask + x.tanh() * mask).sum().backward()

    assert [mask.rate for mask in native_masks(lambda: twice(X.clone().requires_grad_()))] == [0.25]
    assert len(native_masks(lambda: F.dropout(F.dropout(torch.randn(8, 16))))) == 2
