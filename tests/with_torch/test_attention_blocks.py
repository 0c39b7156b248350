"""Attention in blocks whose weights are computed again: the same results, and little memory."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

import quantal.torch._attention as attention
from quantal.torch import _blocks, convert, dilute
from quantal.torch._attention import scaled_dot_product_attention

ALPHA, RATE = 1.0, 0.4


@pytest.fixture
def small_blocks(monkeypatch, most):
    monkeypatch.setattr(_blocks, "_ON_CPU", most)


@pytest.fixture
def nothing_drawn(monkeypatch):
    monkeypatch.setattr(attention, "dilute", lambda x, *args, **kwargs: x)


# Several samples, a few heads, one head, some queries, one query, less than one query at a time.
MOST = pytest.mark.parametrize("most", [300, 120, 35, 20, 7, 1])
MASKS = {
    "none": dict,
    "causal": lambda: {"is_causal": True},
    "of positions": lambda: {"attn_mask": torch.ones(5, 7, dtype=torch.bool).tril()},
    "of samples": lambda: {"attn_mask": torch.rand(3, 1, 1, 7) < 0.8},
    "of all": lambda: {"attn_mask": torch.randn(3, 4, 5, 7)},
    "of queries": lambda: {"attn_mask": torch.randn(5, 1)},
    "grouped": lambda: {"enable_gqa": True},
}


def qkv(options, samples=3):
    of_keys, of_values = (2, 1) if "enable_gqa" in options else (4, 4)
    shapes = (samples, 4, 5, 8), (samples, of_keys, 7, 8), (samples, of_values, 7, 6)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@MOST
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.usefixtures("small_blocks", "nothing_drawn")
def test_blocks_make_the_whole(mask):
    options = MASKS[mask]()
    if options.get("attn_mask") is not None and options["attn_mask"].is_floating_point():
        options["attn_mask"] = options["attn_mask"].double().requires_grad_()
    x = qkv(options)
    got = scaled_dot_product_attention(ALPHA, *x, dropout_p=RATE, **options)
    expected = F.scaled_dot_product_attention(*x, **options)
    torch.testing.assert_close(got, expected)
    wanted = [*x, *(m for m in options.values() if torch.is_tensor(m) and m.requires_grad)]
    upstream = torch.randn_like(got)
    for mine, theirs in zip(
        *(torch.autograd.grad(y, wanted, upstream) for y in (got, expected)), strict=True
    ):
        torch.testing.assert_close(mine, theirs)


def test_a_mask_beside_is_causal_is_refused_as_in_torch():
    x, mask = torch.randn(2, 5, 4), torch.ones(5, 5, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="attn_mask should not be set when is_causal"):
        F.scaled_dot_product_attention(x, x, x, mask, dropout_p=RATE, is_causal=True)
    with pytest.raises(ValueError, match="attn_mask: expected None with is_causal=True"):
        scaled_dot_product_attention(ALPHA, x, x, x, mask, dropout_p=RATE, is_causal=True)


@pytest.mark.parametrize("most", [20])
@pytest.mark.usefixtures("small_blocks", "nothing_drawn")
def test_one_sample_with_a_mask():
    x, mask = qkv({}, samples=1), torch.ones(5, 7, dtype=torch.bool).tril()
    got = scaled_dot_product_attention(ALPHA, *x, attn_mask=mask, dropout_p=RATE)
    torch.testing.assert_close(got, F.scaled_dot_product_attention(*x, attn_mask=mask))


@pytest.mark.parametrize("most", [20])
@pytest.mark.usefixtures("small_blocks", "nothing_drawn")
def test_one_tensor_may_be_query_key_and_value():
    x = torch.randn(2, 3, 5, 5)
    got = scaled_dot_product_attention(ALPHA, x, x, x, dropout_p=RATE)
    torch.testing.assert_close(got, F.scaled_dot_product_attention(x, x, x))


@pytest.mark.parametrize("most", [20])
@pytest.mark.usefixtures("small_blocks")
def test_no_blocks_where_a_draw_cannot_be_repeated(monkeypatch):
    x = torch.randn(2, 3, 5, 5)

    def drawn():
        torch.manual_seed(0)
        return scaled_dot_product_attention(ALPHA, x, x, x, dropout_p=RATE)

    in_blocks = drawn()
    monkeypatch.setattr(_blocks, "_draws_again", lambda x: False)
    assert not torch.equal(drawn(), in_blocks)
    torch.manual_seed(0)
    expected = dilute(torch.softmax(x @ x.mT / 5**0.5, -1), RATE, ALPHA) @ x
    torch.testing.assert_close(drawn(), expected)


@pytest.mark.parametrize("most", [35, 10])
@pytest.mark.parametrize("mask", ["none", "causal", "of positions", "grouped"])
@pytest.mark.usefixtures("small_blocks")
def test_gradients_belong_to_what_was_drawn(mask):
    options = MASKS[mask]()
    heads = 1 if "enable_gqa" in options else 2
    shapes = (1, 2, 5, 2), (1, heads, 7, 2), (1, heads, 7, 2)
    x = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]

    def call(*x):
        torch.manual_seed(3)
        return scaled_dot_product_attention(ALPHA, *x, dropout_p=RATE, **options)

    assert torch.autograd.gradcheck(call, x)
    assert torch.autograd.gradgradcheck(call, x)


@pytest.mark.parametrize("most", [35])
@pytest.mark.usefixtures("small_blocks")
def test_streams_are_left_as_if_nothing_had_been_recomputed():
    x = qkv({})
    torch.manual_seed(3)
    y = scaled_dot_product_attention(ALPHA, *x, dropout_p=RATE)
    state = torch.get_rng_state()
    torch.randn(5)
    after = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(torch.get_rng_state(), after)
    with torch.no_grad():  # draws the same, though nothing will be recomputed
        torch.manual_seed(3)
        assert torch.equal(scaled_dot_product_attention(ALPHA, *x, dropout_p=RATE), y)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("most", [35])
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("reentrant", [False, True])
def test_within_a_checkpoint(reentrant):
    x = qkv({})

    def call(*x):
        return scaled_dot_product_attention(ALPHA, *x, dropout_p=RATE)

    def gradients(run):
        for one in x:
            one.grad = None
        torch.manual_seed(3)
        run(*x).square().sum().backward()
        return [one.grad for one in x]

    plain = gradients(call)
    again = gradients(lambda *x: checkpoint(call, *x, use_reentrant=reentrant))
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


@pytest.mark.parametrize("most", [60])
@pytest.mark.usefixtures("small_blocks")
def test_each_block_has_its_own_coefficients():
    query, key = torch.randn(2, 3, 10, 4), torch.randn(2, 3, 8, 4)
    see_weights = torch.eye(8).expand(2, 3, 8, 8)
    weights = torch.softmax(query @ key.mT / 2, -1)
    c = scaled_dot_product_attention(ALPHA, query, key, see_weights, dropout_p=RATE) / weights
    rows = {tuple(row.tolist()) for row in (c > 0.01).flatten(0, -2)}
    assert len(rows) > 30  # of 60: those of 8 bits may meet


def test_one_block_draws_what_dilute_draws():
    query, key = torch.randn(2, 3, 10, 4), torch.randn(2, 3, 8, 4)
    torch.manual_seed(0)
    got = scaled_dot_product_attention(
        ALPHA, query, key, torch.eye(8).expand(2, 3, 8, 8), dropout_p=RATE
    )
    torch.manual_seed(0)
    weights = torch.softmax(query @ key.mT / 2, -1)
    torch.testing.assert_close(got, dilute(weights, RATE, ALPHA))


class Memory(TorchDispatchMode):
    """Follows how many bytes are alive, of all that is made within it; views of x are not."""

    def __init__(self, x):
        super().__init__()
        self.given = {one.untyped_storage().data_ptr() for one in x}
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if torch.is_tensor(x) and x.untyped_storage().data_ptr() not in self.given:
                storage = x.untyped_storage()
                self.alive.setdefault(
                    storage.data_ptr(), (StorageWeakRef(storage), storage.nbytes())
                )
        self.most = max(self.most, self.now())
        return made

    def now(self):
        self.alive = {at: one for at, one in self.alive.items() if not one[0].expired()}
        return sum(size for _, size in self.alive.values())


def used(call, length):
    """Return the bytes kept between both passes and the most alive, for two heads."""
    x = [torch.randn(1, 2, length, 16, requires_grad=True) for _ in range(3)]
    with Memory(x) as memory:
        y = call(*x)
        kept = memory.now() - y.nbytes
        y.sum().backward()
    return kept, memory.most


@pytest.mark.parametrize("most", [2**12])
@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=str)
def test_memory_grows_with_the_length_and_not_with_its_square(options):
    def qsd(*x):
        return scaled_dot_product_attention(ALPHA, *x, dropout_p=RATE, **options)

    def dropout(*x):
        return F.scaled_dot_product_attention(*x, dropout_p=RATE, **options)

    (kept, most), (kept_of_two, most_of_two) = (used(qsd, length) for length in (256, 512))
    # Of 16 numbers a position, and of blocks of 2¹² weights and a few numbers for each of them.
    linear = 2 * 256 * 16 * 4
    assert kept_of_two - kept <= linear
    assert most_of_two - most <= 8 * linear
    weights = 2 * 512**2 * 4
    native = used(dropout, 512)
    assert native[0] >= weights
    assert kept_of_two < native[0] / 10
    assert most_of_two < native[1] / 4


def test_converted_modules_take_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "_ON_CPU", 2**14)
    length, width = 512, 16
    model = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.3, batch_first=True)
    convert(model, 1.0)
    x = torch.randn(2, length, width, requires_grad=True)
    with Memory([x, *model.parameters()]) as memory:
        y = model(x)
        kept = memory.now()
        y.sum().backward()
    assert kept < 2 * 2 * length**2 * 4  # of all weights
    assert torch.isfinite(x.grad).all()
